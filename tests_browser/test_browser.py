"""The instrument itself: a page that misbehaves must be noticed."""


def page(tmp_path, body):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><title>t</title><link rel=icon href='data:,'>{body}", encoding="utf-8")
    return path.as_uri()


def test_a_page_that_keeps_to_itself_is_clean(browser, tmp_path):
    address = page(tmp_path, "<p id=p>hello<img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>")
    browser.open(address)
    assert browser.find("#p").text == "hello"
    assert browser.console_errors() == []
    assert browser.requests() == [address]
    assert browser.foreign_requests(address) == []


def test_a_script_that_throws_is_an_error(browser, tmp_path):
    browser.open(page(tmp_path, "<script>throw new Error('broken page')</script>"))
    assert "broken page" in browser.console_errors()[0]


def test_a_request_elsewhere_is_seen(browser, tmp_path):
    address = page(tmp_path, "<script>fetch('http://127.0.0.1:9/beacon').catch(() => {})</script>")
    browser.open(address)
    browser.wait_for_text("body", "")
    assert browser.foreign_requests(address) == ["http://127.0.0.1:9/beacon"]


def test_a_screenshot_is_of_the_whole_page(browser, tmp_path):
    browser.resize(400, 300)
    browser.open(page(tmp_path, "<div style='height:1000px'>tall</div>"))
    picture = browser.screenshot("instrument").read_bytes()
    width, height = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
    assert width == 800
    assert height >= 2000
