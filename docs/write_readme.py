"""Write the table of results into the README: ``python docs/write_readme.py``.

The figures come from the records in ``docs/results/records``. A test compares.
"""

from pathlib import Path

from skh2edl.benchmark import Table, make_tables, read_records

DOCS = Path(__file__).resolve().parent
README = DOCS.parent / "README.md"
START, END = "<!-- results -->", "<!-- /results -->"
TABLE = "grocery_store-tf_efficientnet_lite0-main"
ROWS = ("Flat-CE", "Hier-CE", "H2EDL")
COLUMNS = ("bAcc %", "ECE %", "NLL", "ECE %, calibrated", "NLL, calibrated", "severity")


def results():
    """Return the table in Markdown."""
    full = make_tables(read_records(DOCS / "results" / "records" / "trained"))[TABLE]
    rows = [row for wanted in ROWS for row in full.rows if row.title == (wanted,)]
    short = Table(
        full.name,
        full.caption,
        full.headings,
        tuple(column for column in full.columns if column.title in COLUMNS),
        tuple(rows),
    )
    return short.to_markdown()


def main():
    """Replace what stands between the marks."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    README.write_text(f"{before}{START}\n{results().strip()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
