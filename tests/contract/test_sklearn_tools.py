"""Tools of scikit-learn: each works, or is refused with a message; the page says which."""

import re
import runpy
from pathlib import Path

import pytest
from sklearn_cases import ROWS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("row", ROWS, ids=[row.tool for row in ROWS])
def test_a_tool_works_or_is_refused_with_this_message(row):
    if not row.refused:
        row.run()
        return
    with pytest.raises(ValueError, match=re.escape(row.refused)):
        row.run()


def test_the_table_has_its_tools_once():
    tools = [row.tool for row in ROWS]
    assert len(tools) == len(set(tools)) >= 25


def test_the_page_is_made_of_the_table():
    script = runpy.run_path(str(DOCS / "write_scikit_learn.py"))
    page = (DOCS / "scikit_learn.md").read_text(encoding="utf-8")
    assert page == script["page"](), "python docs/write_scikit_learn.py"
