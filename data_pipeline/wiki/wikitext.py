"""Wikitext to plain text with link offsets."""

import re
from typing import Any

from data_pipeline.wiki.page import Link, replace_spans

_SKIPPED_TAGS = re.compile(
    "ref|references|gallery|table|math|score|timeline|imagemap|style|script|syntaxhighlight|"
    "source|chem|hiero|graph|mapframe|templatestyles|noinclude"
)
# Namespaces, and languages, which are in lower case and close up: "CSI: Miami" is a title.
_SKIPPED_LINKS = re.compile(
    r"\s*(?:(?i:file|image|category|media|special|wikt|wp):|[a-z]{2,3}:(?!\s))"
)
_SECTIONS_CUT = frozenset(
    ("references", "external links", "further reading", "notes", "bibliography", "sources")
)
_DISAMBIGUATION = re.compile(
    r"(?:disambiguation|disambig|disamb|dab|hndis|geodis|schooldis|numberdis|surname|given name)"
    r"(?:\s|$|-|/)",
    re.I,
)
# Templates whose words are read as a part of the sentence: name to the arguments shown.
_SHOWN = {
    "convert": ("1", "2"),
    "cvt": ("1", "2"),
    "nowrap": ("1",),
    "nobr": ("1",),
    "lang": ("2",),
    "transl": ("2",),
    "formatnum": ("1",),
    "val": ("1",),
    "small": ("1",),
    "abbr": ("1",),
    "quote": ("1",),
    "cquote": ("1",),
    "blockquote": ("1",),
    "angbr": ("1",),
    "as of": ("1",),
    "birth date": ("1",),
}
_TIDY = (
    (re.compile(r"'{2,}"), ""),
    (re.compile(r"[ \t\u00a0]+"), " "),
    (re.compile(r"\( ?[;,]? ?\) ?"), ""),
    (re.compile(r"(?<=\() ?[;,] ?"), ""),
    (re.compile(r" +(?=[,.;:)\n])"), ""),
    (re.compile(r"(?<=\n) +"), ""),
    (re.compile(r"\n{2,}"), "\n"),
    (re.compile(r"\A\s+"), ""),
)


class _Writer:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.links: list[Link] = []
        self.disambiguation = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)


def to_text(wikitext: str) -> tuple[str, tuple[Link, ...], bool]:
    """The plain text, its links, and whether the page is a disambiguation.

    Templates are left out but for a few whose words belong to a sentence, such as `{{convert}}`;
    so are tables, references and the sections that hold only references.
    """
    import mwparserfromhell

    writer = _Writer()
    _walk(mwparserfromhell.parse(wikitext, skip_style_tags=True), writer)
    text, links = "".join(writer.parts), tuple(writer.links)
    for pattern, by in _TIDY:
        text, links = replace_spans(text, links, pattern, by)
    return text, links, writer.disambiguation


def _walk(code: Any, out: _Writer) -> None:
    from mwparserfromhell import nodes

    for node in code.nodes:
        if isinstance(node, nodes.Text):
            out.add(str(node.value))
        elif isinstance(node, nodes.Wikilink):
            _link(node, out)
        elif isinstance(node, nodes.Template):
            _template(node, out)
        elif isinstance(node, nodes.Heading):
            title = node.title.strip_code().strip()
            if node.level == 2 and title.lower() in _SECTIONS_CUT:
                return  # such sections close a page
            out.add(f"\n{title}\n")
        elif isinstance(node, nodes.Tag):
            name = str(node.tag).strip().lower()
            if name in ("br", "li", "dd", "dt", "hr"):
                out.add("\n")
            elif node.contents is not None and not _SKIPPED_TAGS.fullmatch(name):
                _walk(node.contents, out)
        elif isinstance(node, nodes.HTMLEntity):
            out.add(node.normalize())
        elif isinstance(node, nodes.ExternalLink) and node.title is not None:
            _walk(node.title, out)


def _link(node: Any, out: _Writer) -> None:
    title = str(node.title)
    if _SKIPPED_LINKS.match(title):
        if "disambiguation pages" in title.lower():
            out.disambiguation = True
        return
    start = out.size
    if node.text is None:
        out.add(title.lstrip(":"))
    else:
        _walk(node.text, out)
    if out.size > start and title.partition("#")[0].strip():
        out.links.append(Link(start, out.size, title.lstrip(":").strip()))


def _template(node: Any, out: _Writer) -> None:
    name = str(node.name).strip().lower()
    if _DISAMBIGUATION.match(name):
        out.disambiguation = True
    language = name.startswith("lang-")
    for k, argument in enumerate(("1",) if language else _SHOWN.get(name, ())):
        if node.has(argument, ignore_empty=True):
            out.add(" " if k else "")
            _walk(node.get(argument).value, out)
