"""A small RCV1-v2 in both of its published forms; the words are made up."""

from abalone.data.benchmarks.rcv1 import QRELS, TOKENS

# id -> topics: 40 training documents, 8 test documents
TRAIN = {2286 + 3 * i: ["CCAT", "C15", *(["GCAT"] if i < 29 else [])] for i in range(40)}
TEST = {26151 + i: ["C15", "GCAT"] for i in range(8)}
PARTS = [TRAIN, *(dict(list(TEST.items())[start : start + 2]) for start in range(0, 8, 2))]


def record(document):
    return f".I {document}\n.W\nrecov excit {document}\nmexic bank\n\n"


def write_tokens(place, end="\n"):
    for name, part in zip(TOKENS, PARTS, strict=True):
        (place / name).write_text("".join(map(record, part)), "latin-1", newline=end)
    lines = (f"{topic} {document} 1\n" for part in PARTS for document, topics in part.items() for topic in topics)
    (place / QRELS).write_text("".join(lines), "latin-1", newline=end)


def newsitem(document, topics, text="Some &lt;news&gt; &#233;t&#xe9;."):
    codes = "".join(f'<code code="{topic}"><editdetail attribution="X"/></code>' for topic in topics)
    return f"""<?xml version="1.0" encoding="iso-8859-1" ?>
<newsitem itemid="{document}" id="root" date="1996-08-20" xml:lang="en">
<title>USA: Caf\xe9 {document}.</title><headline>Caf\xe9 {document}.</headline><dateline>NY</dateline>
<text><p>{text}</p>
<p>And more.</p></text><copyright>(c) someone</copyright>
<metadata><codes class="bip:countries:1.0"><code code="USA"/></codes>
<codes class="bip:topics:1.0">{codes}</codes></metadata></newsitem>""".encode("latin-1")


def leaves(topics):
    """What the raw XML has: topics without their ancestors."""
    return [topic for topic in topics if topic != "CCAT"]


def write_xml(place, extra=()):
    items = [(document, newsitem(document, leaves(topics))) for part in PARTS for document, topics in part.items()]
    for document, content in [*items, *extra]:
        day = place / f"day{document % 2}"
        day.mkdir(parents=True, exist_ok=True)
        (day / f"{document}newsML.xml").write_bytes(content)


def same(one, other):
    return one.label_names == other.label_names and all(
        list(a.texts) == list(b.texts) and (a.labels != b.labels).nnz == 0
        for (_, a), (_, b) in zip(one.splits(), other.splits(), strict=True)
    )
