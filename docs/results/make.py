"""Make the tables of the results pages from their records: ``python docs/results/make.py``.

The records come from these runs, each of which resumes where it was interrupted::

    skh2edl benchmark --dataset glyphs --preset study --records docs/results/records/glyphs
    skh2edl benchmark --dataset grocery_store --root GROCERY --preset study \
        --backbone tf_efficientnet_lite0 --weights tf_efficientnet_lite0.safetensors \
        --records docs/results/records/grocery
    skh2edl benchmark --dataset grocery_store --root GROCERY --preset study \
        --backbone resnet50 --weights resnet50_imagenet_fp16.safetensors \
        --records docs/results/records/grocery
    skh2edl benchmark --dataset glyphs --frozen --preset study --table main --table ablation \
        --backbone tf_efficientnet_lite0 --weights tf_efficientnet_lite0.safetensors \
        --records docs/results/records/glyphs_frozen
    skh2edl benchmark --dataset glyphs --frozen --preset study --table main --table ablation \
        --backbone resnet50 --weights resnet50_imagenet_fp16.safetensors \
        --records docs/results/records/glyphs_frozen
    python docs/results/depth_profile.py run
"""

import argparse
from pathlib import Path

from depth_profile import write_table

from skh2edl.benchmark import make_tables, read_records, write_tables

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records"
TABLES = HERE / "tables"
TITLES = {
    "main": "Leaves, before and after calibration",
    "levels": "Every level",
    "severity": "Mistakes on the tree",
    "doubt": "Doubt and errors",
    "calibration": "Two ways to calibrate an opinion",
    "budget": "Twice the epochs",
    "coarsened": "Coarse labels",
    "ablation": "Forms of H²EDL",
}


def make(records=RECORDS, tables=TABLES):
    """Write every table, and for each network a page that holds all of its tables."""
    tables.mkdir(parents=True, exist_ok=True)
    written = []
    written.append(write_table(records / "depth_profile", tables / "depth_profile.md"))
    for folder in (records / "glyphs", records / "glyphs_frozen", records / "grocery"):
        written += write_tables(folder, tables)
        pages: dict[str, list[str]] = {}
        for name, table in make_tables(read_records(folder)).items():
            text = f"### {TITLES[table.name]}\n\n*{table.caption}.*\n\n{table.to_markdown()}\n"
            pages.setdefault(name.removesuffix(f"-{table.name}"), []).append(text)
        for name, texts in pages.items():
            page = tables / f"{name}.md"
            comment = "<!-- Made from records; do not edit. -->\n\n"
            page.write_text(comment + "\n".join(texts), encoding="utf-8", newline="\n")
            written.append(page)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tables", type=Path, default=TABLES)
    options = parser.parse_args()
    for path in make(options.records, options.tables):
        print(path.name)
