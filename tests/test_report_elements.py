"""Elements of the report: whatever text goes in, only elements stay elements."""

from html.parser import HTMLParser

import pytest

from rankscope_analyzers.reports.report_page.elements import Html, element, join


class Read(HTMLParser):
    """Tags with their attributes, and text, as a browser reads them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page.markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


HOSTILE = [
    'a" onmouseover="alert(1)',
    "a' onmouseover='alert(1)",
    "<script>alert(1)</script>",
    "&quot; &amp; &lt;b&gt;",
    '"><img src=x>',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_an_attribute_holds_its_text_and_makes_no_other_one(text):
    read = Read(element("span", title=text, data_node=text))
    assert read.tags == [("span", {"title": text, "data-node": text})]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_and_elements_stay_elements(text):
    read = Read(element("p", text, element("b", text), None, "", join(["x", Html("<br>")])))
    assert [tag for tag, _ in read.tags] == ["p", "b", "br"]
    assert read.text == f"{text}{text}x"


def test_attributes_that_are_true_stand_alone_and_absent_ones_are_left_out():
    made = element("input", class_="a", disabled=True, hidden=False, title=None, size=3)
    assert made.markup == '<input class="a" disabled size="3">'
