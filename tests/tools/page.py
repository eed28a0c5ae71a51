# SPDX-License-Identifier: Apache-2.0
"""page.py FILE WORD...: an HTML page that needs nothing else, with every tag closed, drawings that are XML and no figure that is
none, and each WORD in its text."""
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

EMPTY = {"meta", "br", "link", "img", "hr"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.seen = [], [], set()

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        assert not {"src", "href", "onclick", "onload"} & set(names), f"<{tag}> fetches or runs something"
        assert tag not in ("script", "link", "img", "iframe"), tag
        self.seen.add(tag)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing, line {self.getpos()[0]}"

    def handle_data(self, data):
        self.text.append(data)


source = open(sys.argv[1], encoding="utf-8").read()
assert source.startswith("<!DOCTYPE html>")
page = Page()
page.feed(source)
page.close()
assert not page.open, f"never closed: {page.open}"
assert {"html", "head", "title", "style", "body", "main", "h1", "svg", "table"} <= page.seen
drawings = re.findall(r"<svg.*?</svg>", source, re.S)
for drawing in drawings:
    root = ET.fromstring(drawing)
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not re.search(r"\b(nan|inf)\b", value, re.I), (element.tag, name, value)
        if element.tag.endswith("rect"):
            x, y = float(element.get("x")), float(element.get("y"))
            assert -0.5 <= x and x + float(element.get("width")) <= width + 0.5, ET.tostring(element)
            assert -0.5 <= y and y + float(element.get("height")) <= height + 0.5, ET.tostring(element)
text = " ".join("".join(page.text).split())
for word in sys.argv[2:]:
    assert word in text, f"the page lacks '{word}'"
print(f"{len(drawings)} drawings")
