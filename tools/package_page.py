"""Make the package's page on an index from README.md, whose links and pictures are relative to the repository."""

import re

RELATIVE = r"(?![a-z]+:|#)"
PICTURE = re.compile(rf'(<img src="|!\[[^\]]*\]\(){RELATIVE}')
PICTURE_AND_CAPTION = re.compile(
    rf'(?:<img src="{RELATIVE}[^>]*>|!\[[^\]]*\]\({RELATIVE}[^)]*\))\n*'
    r"(?:\*[^*]+\*\n\n)?"  # a caption is a paragraph in italics
)
LINK = re.compile(rf"(?<!!)\[([^\]]+)\]\({RELATIVE}([^)#\s]+)(#[^)\s]*)?\)")
NOTE = "\n\nFile names on this page are those of the source distribution.\n"


def package_page(readme: str, repository: str | None = None) -> str:
    """Return the README with addresses in the repository, or without links and pictures where it has no address yet.

    >>> package_page("See [the tutorial](docs/tutorial.md).", "https://example.org/abalone")
    'See [the tutorial](https://example.org/abalone/blob/HEAD/docs/tutorial.md).'
    """
    if repository is None:
        return LINK.sub(_name_of_file, PICTURE_AND_CAPTION.sub("", readme)).rstrip() + NOTE
    return LINK.sub(rf"[\1]({repository}/blob/HEAD/\2\3)", PICTURE.sub(rf"\1{repository}/raw/HEAD/", readme))


def _name_of_file(link: re.Match[str]) -> str:
    text, path, _ = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
