"""Does the depth profile point to the level of an ambiguity? ``python depth_profile.py run``.

A model of clear images sees images that are ambiguous at one level of the tree. Writes one record
for each form of H²EDL and seed; ``make.py`` makes the table from the records.
"""

import argparse
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "depth_profile"
AMOUNTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
AMBIGUITIES = {
    "look-alikes in another script": lambda amount: {"lookalike_fraction": amount},
    "overprinted sibling": lambda amount: {"ghost": amount},
    "blur": lambda amount: {"blur": 0.2 + 2 * amount},
}
# Name -> parameters of H2EDLClassifier.
FORMS = {"default": {}}
SEEDS = (0, 1, 2)


def run(records):
    """Fit on clear images, and read the profiles of ambiguous ones."""
    from sklearn.kernel_approximation import Nystroem

    from skh2edl import H2EDLClassifier
    from skh2edl.benchmark.records import versions, write_record
    from skh2edl.datasets import make_glyphs

    def draw(n_samples, seed, **options):
        clear = {"blur": 0.2, "noise": 0.05, "occlusion": 0.0}
        return make_glyphs(
            n_samples,
            scripts=("Latin", "Greek"),
            image_size=16,
            random_state=seed,
            **{**clear, **options},
        )

    for seed in SEEDS:
        train = draw(4000, seed, blur=(0.0, 0.5))
        kernel = Nystroem(gamma=0.03, n_components=400, random_state=0)

        def features(data, kernel=kernel):
            pixels = data.images.reshape(len(data), -1).astype(np.float32) / 255
            return kernel.transform(pixels).astype(np.float32)

        kernel.fit(train.images.reshape(len(train), -1).astype(np.float32) / 255)
        ambiguous = {
            name: [
                draw(500, seed + 7, **{"lookalike_fraction": 0.0, **options(amount)})
                for amount in AMOUNTS
            ]
            for name, options in AMBIGUITIES.items()
        }
        for form, parameters in FORMS.items():
            path = records / f"{form.replace(',', '').replace(' ', '-')}-seed{seed}.json"
            if path.exists():
                continue
            clf = H2EDLClassifier(train.taxonomy, backbone=None, **parameters)
            clf.fit(features(train), train.labels)
            profiles = {}
            for name, sets in ambiguous.items():
                profiles[name] = [
                    clf.predict_hyper_opinion(features(data)).depth_profile.mean(axis=0).tolist()
                    for data in sets
                ]
            record = {
                "form": form,
                "parameters": parameters,
                "seed": seed,
                "amounts": list(AMOUNTS),
                "n_iter": clf.n_iter_,
                "profiles": profiles,
                "versions": versions(),
            }
            write_record(path, record)
            print(path.name, flush=True)


def write_table(records, path):
    """Write the table of a folder of records."""
    from scipy.stats import spearmanr

    read = [json.loads(file.read_text()) for file in sorted(records.glob("*.json"))]
    n_levels = len(next(iter(read[0]["profiles"].values()))[0])
    depths = range(n_levels)
    header = ["form", "ambiguity", *(f"U_{d}, none → most" for d in depths)]
    header += [f"rank correlation of U_{d}" for d in depths]
    lines = ["<!-- Made from records; do not edit. -->", "", "| " + " | ".join(header) + " |"]
    lines.append("|" + "---|" * len(header))
    for form in FORMS:
        mine = [record for record in read if record["form"] == form]
        for kind in AMBIGUITIES if mine else ():
            profiles = np.array([record["profiles"][kind] for record in mine])
            means = profiles.mean(axis=0)
            cells = [form, kind, *(f"{means[0, d]:.3f} → {means[-1, d]:.3f}" for d in depths)]
            for d in depths:
                found = [spearmanr(AMOUNTS, profile[:, d]).statistic for profile in profiles]
                cells.append(", ".join(f"{value:.2f}" for value in found))
            lines.append("| " + " | ".join(cells) + " |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--records", type=Path, default=RECORDS)
    run(parser.parse_args().records)
