"""What a report shows, of figures that are made up: the page, the plots and the tables."""

from __future__ import annotations

import csv
import struct
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from embedq.spark.pipelines.reports import findings, wording
from embedq.spark.pipelines.reports.figures import span_for
from tests.spark import measured as samples

pytestmark = pytest.mark.spark  # matplotlib and pyarrow are needed, but no JVM

MADE = datetime(2026, 3, 3, tzinfo=UTC)
PNG = b"\x89PNG"
SHOWN = 15
CAUSES = 10
MANY = [f"tenant-{n}/orders" for n in range(200)]


class Read(HTMLParser):
    """The page as a browser reads it: elements, their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.texts = []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "br", "source"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def plots(measured):
    """Imported late, as all tests are collected without what Spark needs, too."""
    from embedq.spark.pipelines.reports.plots import plots

    return plots(measured)


def shown(measured, title="Report"):
    from embedq.spark.pipelines.reports.page import Picture, page

    pictures = [Picture(plot.title, plot.alt, PNG, PNG) for plot in plots(measured)]
    return page(measured, pictures, title=title, made=MADE)


@pytest.mark.parametrize(
    "measured",
    [samples.nothing(), samples.many(["orders"], hours=1), samples.many(MANY)],
    ids=["nothing", "one queue", "200 queues"],
)
def test_a_page_is_whole_small_and_in_order_whatever_there_is(measured):
    text = shown(measured)
    read = Read(text)
    assert read.open == []
    assert len(text) < 200_000
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in read.all("a")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert len(read.all("caption")) == len(read.all("table"))
    assert all(len(attributes["alt"]) > 20 for attributes in read.all("img"))
    assert len(read.all("h1")) == 1
    assert len(read.all("tr")) < 10 * SHOWN


def test_a_page_needs_no_script_and_nothing_from_elsewhere():
    read = Read(shown(samples.many(MANY)))
    assert not read.all("script")
    for _, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "srcset", "href"):
            assert attributes.get(name, "data:").startswith(("data:", "#"))


def test_what_messages_say_is_text_and_never_a_part_of_the_page():
    hostile = samples.many(list(samples.HOSTILE))
    read = Read(shown(hostile, title=samples.HOSTILE[0]))
    harmless = Read(shown(samples.many([f"queue {n}" for n in range(len(samples.HOSTILE))])))
    assert [tag for tag, _ in read.elements] == [tag for tag, _ in harmless.elements]
    whole = "".join(read.texts)
    assert "</td><script>alert(1)</script>" in whole
    assert "{{ 7*7 }}{% raw %}" in whole
    assert all(c.isprintable() or c == "\n" for c in whole if c != "\N{NO-BREAK SPACE}")
    assert "\\u202e" in whole


def test_what_is_left_out_of_a_table_is_counted_below_it():
    measured = samples.many(MANY)
    whole = "".join(Read(shown(measured)).texts)
    rest = measured.total.deliveries - sum(one.deliveries for one in measured.queues[:SHOWN])
    assert f"and 185 more, with {rest:,} deliveries" in whole
    assert len(measured.failures) > CAUSES
    assert "more failures have other causes" in whole


@pytest.mark.filterwarnings("error")
def test_plots_are_drawn_of_names_that_no_font_and_no_formula_can_take():
    from embedq.spark.pipelines.reports.plots import BRIGHT

    measured = samples.many(list(samples.HOSTILE), hours=3)
    made = {plot.name: plot for plot in plots(measured)}
    assert list(made) == ["throughput", "durations", "queues", "failures", "attempts"]
    for name in ("throughput", "queues"):
        png = made[name].draw(BRIGHT)
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(PNG)
        assert width > 1000 < height * 2


def test_there_is_no_plot_of_nothing_and_spans_without_deliveries_are_gaps():
    from embedq.spark.pipelines.reports.plots import BRIGHT

    assert plots(samples.nothing()) == []
    measured = samples.many(["orders"], hours=30)
    del measured.spans[3:25]
    (throughput, *_) = plots(measured)
    assert "30 in all" in throughput.alt
    assert throughput.draw(BRIGHT).startswith(PNG)


def test_a_cell_of_a_table_is_no_formula_for_a_spreadsheet(tmp_path):
    from pyarrow import parquet

    from embedq.spark.pipelines.reports.tables import write_tables

    measured = samples.many(list(samples.HOSTILE))
    paths = write_tables(measured, tmp_path)
    assert len(paths) == 20
    with (tmp_path / "queues.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(samples.HOSTILE)
    names = [row["queue"] for row in rows]
    assert '\'=HYPERLINK("http://x.invalid";"y")' in names
    assert not [name for name in names if name.startswith("=") or "\x1b" in name]
    assert int(rows[0]["deliveries"]) == measured.queues[0].deliveries
    exact = parquet.read_table(tmp_path / "queues.parquet")
    assert exact["queue"].to_pylist() == list(samples.HOSTILE)
    write_tables(samples.nothing(), tmp_path)
    assert parquet.read_table(tmp_path / "queues.parquet").schema == exact.schema


def test_the_first_words_say_which_queue_is_slow_and_which_error_is_most():
    measured = samples.many(["orders", "mail", "invoices"])
    worst = max(measured.queues, key=lambda one: one.wait.total)
    said = findings.slow(measured)
    assert said[1].about == worst.queue
    assert said[1].before.endswith("of all waiting is in")
    said = findings.failing(measured)
    assert said[0].before.startswith("12\N{NO-BREAK SPACE}% of the deliveries fail (")
    assert said[1].about == measured.failures[0].type
    assert said[1].more == measured.failures[0].message
    assert said[-1].about == "max_attempts"


def test_the_first_words_of_a_quiet_history_claim_nothing():
    assert [it.before for it in findings.slow(samples.nothing())] == [
        "Nothing was delivered, so nothing was slow."
    ]
    assert [it.before for it in findings.failing(samples.nothing())] == [
        "Nothing was delivered, so nothing failed."
    ]
    even = findings.slow(samples.many(MANY))
    assert even[1].before.startswith("No queue stands out in waiting")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.0999, "99.9 ms"),
        (0.99996, "1 s"),
        (1.254, "1.25 s"),
        (59.996, "1 min"),
        (100, "1 min 40 s"),
        (3600, "1 h"),
        (7199.9, "2 h"),
        (90_000, "1 d 1 h"),
        (40_000_000, "462 d 23 h"),
    ],
)
def test_times_are_read_with_their_two_largest_units(value, read):
    assert wording.seconds(value).replace("\N{NO-BREAK SPACE}", " ") == read


@pytest.mark.parametrize(
    ("part", "whole", "read"),
    [
        (0, 0, "–"),
        (0, 9, "0 %"),
        (1, 9999, "<0.1 %"),
        (1, 15, "6.7 %"),
        (1, 2, "50 %"),
        (9999, 10_000, ">99.9 %"),
        (9, 9, "100 %"),
    ],
)
def test_a_share_is_neither_all_nor_nothing_unless_it_is(part, whole, read):
    assert wording.share(part, whole).replace("\N{NO-BREAK SPACE}", " ") == read


@pytest.mark.parametrize(
    ("length", "span"), [(0, 1), (1999, 10), (11_000, 60), (7 * 86_400, 3600), (1e9, 1_814_400)]
)
def test_spans_of_time_are_an_hour_for_most_and_never_too_many(length, span):
    assert span_for(length) == span
    assert length / span <= 1000
