"""Rank tables, Darwin Core and Camtrap DP, against the fields that their standards list."""

import csv
import io
import re
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from skh2edl import Taxonomy
from skh2edl.exports import (
    Identifications,
    camtrap_observations,
    darwin_core_occurrences,
    rank_table,
    write_export,
)
from skh2edl.exports.writing import table_text
from tests.exports.exports_cases import IDS, TREE, identified, media, opinion

# Fields of observations in Camtrap DP 1.0, in their order: type, and what a value must fulfil.
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)"
CAMTRAP = {
    "observationID": ("string", {"required": True, "unique": True}),
    "deploymentID": ("string", {"required": True}),
    "mediaID": ("string", {}),
    "eventID": ("string", {}),
    "eventStart": ("datetime", {"required": True}),
    "eventEnd": ("datetime", {"required": True}),
    "observationLevel": ("string", {"required": True, "enum": ["media", "event"]}),
    "observationType": (
        "string",
        {
            "required": True,
            "enum": ["animal", "human", "vehicle", "blank", "unknown", "unclassified"],
        },
    ),
    "cameraSetupType": ("string", {"enum": ["setup", "calibration"]}),
    "scientificName": ("string", {}),
    "count": ("integer", {"minimum": 1}),
    "lifeStage": ("string", {"enum": ["adult", "subadult", "juvenile"]}),
    "sex": ("string", {"enum": ["female", "male"]}),
    "behavior": ("string", {}),
    "individualID": ("string", {}),
    "individualPositionRadius": ("number", {"minimum": 0}),
    "individualPositionAngle": ("number", {"minimum": -90, "maximum": 90}),
    "individualSpeed": ("number", {"minimum": 0}),
    "bboxX": ("number", {"minimum": 0, "maximum": 1}),
    "bboxY": ("number", {"minimum": 0, "maximum": 1}),
    "bboxWidth": ("number", {"minimum": 1e-15, "maximum": 1}),
    "bboxHeight": ("number", {"minimum": 1e-15, "maximum": 1}),
    "classificationMethod": ("string", {"enum": ["human", "machine"]}),
    "classifiedBy": ("string", {}),
    "classificationTimestamp": ("datetime", {}),
    "classificationProbability": ("number", {"minimum": 0, "maximum": 1}),
    "observationTags": ("string", {}),
    "observationComments": ("string", {}),
}
TYPES = {"blank": "blank"}
OPTIONS = {"classified_by": "cats 1.0", "timestamp": "2024-06-01T00:00:00Z"}


def observe(level="media", **options):
    return camtrap_observations(
        identified(), media(), level=level, observation_types=TYPES, **OPTIONS, **options
    )


# Rank columns ------------------------------------------------------------------------------------


def test_ranks_have_a_column_each_and_end_where_the_identification_does():
    rows = rank_table(identified())
    assert list(rows[0]) == ["file_name", "family", "genus", "species", "score", "rank"]
    assert [row["species"] for row in rows] == ["Lynx lynx", "", "", "", ""]
    assert [row["genus"] for row in rows] == ["Lynx", "Lynx", "", "", ""]
    assert rows[1]["score"] == pytest.approx(opinion()[1].probability("Lynx")[0], abs=1e-6)


def test_a_level_with_the_name_of_another_column_has_a_column_of_its_own():
    tree = Taxonomy.from_nested({"good": ["best"], "poor": None}, level_names=("score", "rank"))
    found = Identifications.from_proba([[0.75, 0.25]], tree, ["a.jpg"])
    level = {"level_score": "good", "level_rank": "best"}
    assert rank_table(found) == [{"file_name": "a.jpg", **level, "score": 0.75, "rank": "rank"}]
    assert rank_table(found, k=2)[0] == {"file_name": "a.jpg", **level, "score": 0.75}


def test_no_level_takes_the_column_of_another():
    tree = Taxonomy.from_paths([("x", "y"), ("x", "z")], level_names=("level_score", "score"))
    (row,) = rank_table(Identifications.from_proba([[1.0, 0.0]], tree, ["a.jpg"]))
    levels = {"level_score": "x", "level_level_score": "y"}
    assert row == {"file_name": "a.jpg", **levels, "score": 1.0, "rank": "score"}


def test_the_best_leaves_of_an_image_are_rows_in_falling_order():
    rows = rank_table(identified(), k=3)
    assert len(rows) == 15
    first = [row for row in rows if row["file_name"] == "b.jpg"]
    order = np.sort(opinion()[1].leaf_probability[0])[::-1][:3]
    np.testing.assert_allclose([row["score"] for row in first], order, atol=1e-6)
    with pytest.raises(ValueError, match="k must lie between 1 and the 5 leaves, got 6"):
        rank_table(identified(), k=6)


def test_a_formula_in_a_cell_is_made_harmless(tmp_path):
    tree = Taxonomy.flat(["=HYPERLINK(1)", "+1+1", "@x", "-y", "safe"])
    ids = ["=cmd()", "b", "c", "d", "e"]
    found = Identifications.from_proba(np.eye(5), tree, ids)
    write_export(found, tmp_path / "ranks.csv", "ranks")
    with (tmp_path / "ranks.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert "'=HYPERLINK(1)" in cells


# Darwin Core -------------------------------------------------------------------------------------


def test_occurrences_say_taxon_rank_and_that_a_machine_identified_them():
    rows = darwin_core_occurrences(
        identified(),
        identified_by="cats 1.0",
        date_identified="2024-06-01",
        review_below=0.9,
        columns={"eventDate": [f"2024-05-0{d}" for d in range(1, 6)]},
    )
    assert [row["scientificName"] for row in rows] == [
        "Lynx lynx", "Lynx", "Felidae", "blank", "incertae sedis",
    ]  # fmt: skip
    assert [row["taxonRank"] for row in rows] == ["species", "genus", "family", "family", ""]
    assert rows[0]["higherClassification"] == "Felidae | Lynx"
    assert (rows[0]["family"], rows[0]["genus"]) == ("Felidae", "Lynx")
    assert {row["basisOfRecord"] for row in rows} == {"MachineObservation"}
    assert [row["identificationVerificationStatus"] for row in rows] == [
        "unverified" if p >= 0.9 else "requires verification" for p in identified().probability
    ]
    assert rows[2]["eventDate"] == "2024-05-03"
    assert "vacuity 0.231" in rows[2]["identificationRemarks"]  # 3 / 13
    assert "thresholds species 0.8, genus 0.7, family 0.6" in rows[2]["identificationRemarks"]


# Simple Darwin Core: the terms that we use, as the standard spells them.
TERMS = {
    "occurrenceID", "basisOfRecord", "occurrenceStatus", "scientificName", "taxonRank", "kingdom",
    "phylum", "class", "order", "superfamily", "family", "subfamily", "tribe", "subtribe", "genus",
    "subgenus", "higherClassification", "associatedMedia", "identifiedBy", "dateIdentified",
    "identificationVerificationStatus", "identificationRemarks",
}  # fmt: skip


def test_every_column_is_a_term_of_darwin_core():
    rows = darwin_core_occurrences(identified(), identified_by="cats 1.0")
    assert set(rows[0]) <= TERMS


def test_occurrences_become_a_taxonomy_again(tmp_path):
    write_export(identified(), tmp_path / "o.csv", "darwin-core", identified_by="cats")
    frame = pd.read_csv(tmp_path / "o.csv", dtype=str)
    tree = Taxonomy.from_darwin_core(frame)
    assert tree.path("Lynx lynx") == ("Felidae", "Lynx", "Lynx lynx")


def test_a_root_that_is_a_taxon_keeps_its_name():
    tree = Taxonomy.from_nested(["cat", "dog"], root_name="Carnivora")
    found = Identifications.from_proba([[0.5, 0.5]], tree, ["1"], thresholds={1: 0.9})
    assert darwin_core_occurrences(found, identified_by="x")[0]["scientificName"] == "Carnivora"


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"columns must hold 5 values each.*{'eventDate': 1}"):
        darwin_core_occurrences(identified(), identified_by="x", columns={"eventDate": ["now"]})


# Camtrap DP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["media", "event"])
def test_observations_fulfil_the_published_fields(level):
    rows = list(csv.DictReader(io.StringIO(table_text(observe(level)))))
    assert list(rows[0]) == [field for field in CAMTRAP if field in rows[0]]
    required = {name for name, (_, rule) in CAMTRAP.items() if rule.get("required")}
    assert required <= set(rows[0])
    assert len({row["observationID"] for row in rows}) == len(rows)
    for row in rows:
        for name, text in row.items():
            kind, rule = CAMTRAP[name]
            assert text or not rule.get("required"), name
            if text and "enum" in rule:
                assert text in rule["enum"]
            if text and kind == "datetime":
                assert re.fullmatch(DATE, text)
            if text and kind in ("number", "integer"):
                assert rule.get("minimum", -1e9) <= float(text) <= rule.get("maximum", 1e9)


def test_types_and_names_of_single_images():
    rows = observe()
    assert [row["observationType"] for row in rows] == ["animal"] * 3 + ["blank", "unknown"]
    assert [row["scientificName"] for row in rows] == ["Lynx lynx", "Lynx", "Felidae", "", ""]
    assert [row["mediaID"] for row in rows] == ["m0", "m1", "m2", "m3", "m4"]
    assert rows[0]["eventStart"] == rows[0]["eventEnd"] == "2024-05-01T12:00:00+02:00"


def test_images_close_in_time_are_one_event_and_are_fused():
    assert [row["eventID"] for row in observe()] == ["d1-1", "d1-1", "d1-2", "d1-2", "d2-1"]
    rows = observe("event")
    assert [row["eventID"] for row in rows] == ["d1-1", "d1-2", "d2-1"]
    assert [row["mediaID"] for row in rows] == [""] * 3
    assert (rows[0]["eventStart"], rows[0]["eventEnd"]) == (
        "2024-05-01T12:00:00+02:00", "2024-05-01T12:01:00+02:00",
    )  # fmt: skip
    fused = opinion().fuse(["1", "1", "2", "2", "3"])
    assert rows[0]["scientificName"] == "Lynx lynx"
    assert rows[0]["classificationProbability"] == pytest.approx(
        fused.probability("Lynx lynx")[0], abs=1e-6
    )
    assert rows[2]["observationType"] == "unknown"


def test_given_events_and_another_gap_are_kept():
    given = [{**row, "eventID": "all"} for row in media()]
    options = {"observation_types": TYPES, **OPTIONS}
    rows = camtrap_observations(identified(), given, level="event", **options)
    assert [row["eventID"] for row in rows] == ["all"]
    near = [row["eventID"] for row in observe(event_gap=60)]
    assert near == ["d1-1", "d1-2", "d1-3", "d1-4", "d2-1"]


def test_media_are_found_by_id_and_by_file():
    renamed = identified()
    by_id = Identifications.from_proba(
        renamed.leaf_probability[:, TREE.leaf_order], TREE, ["m0", "m1", "m2", "m3", "m4"]
    )
    frame = pd.DataFrame(media())
    folders = [f"/photos/{name}" for name in IDS]
    by_name = Identifications.from_proba(
        renamed.leaf_probability[:, TREE.leaf_order], TREE, folders
    )
    found = camtrap_observations(by_name, frame, **OPTIONS)
    assert [row["mediaID"] for row in found] == list(by_id.ids)
    assert [r["mediaID"] for r in camtrap_observations(by_id, frame, **OPTIONS)] == list(by_id.ids)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"timestamp": "yesterday"}, {}, "timestamp of 'm0' must be a date and time with a time"),
        ({"timestamp": "2024-05-01T12:00:00"}, {}, "with a time zone, such as"),
        ({"mediaID": "x", "filePath": "x"}, {}, r"5 image\(s\) are neither a mediaID nor a file"),
        ({}, {"level": "deployment"}, "level must be 'media' or 'event', got 'deployment'"),
        ({}, {"observation_types": {"blank": "empty"}}, "type must be one of .*got 'empty'"),
        ({}, {"observation_types": {"bird": "animal"}}, "not in the taxonomy"),
    ],
)
def test_media_that_cannot_be_used_are_refused(change, options, message):
    given = [{**row, **change} for row in media()]
    with pytest.raises(ValueError, match=message):
        camtrap_observations(identified(), given, **{**OPTIONS, **options})


def test_a_file_name_that_two_media_share_names_neither():
    shots = [{**row, "filePath": f"{row['mediaID']}/x.jpg"} for row in media()]
    found = Identifications.from_proba([[0.5, 0.5]], Taxonomy.flat(["a", "b"]), ["photos/x.jpg"])
    with pytest.raises(ValueError, match=r"1 image\(s\) are neither a mediaID nor a file"):
        camtrap_observations(found, shots, **OPTIONS)


def test_a_table_that_is_not_of_media_is_refused():
    with pytest.raises(ValueError, match=r"lack \['deploymentID', 'timestamp'\]"):
        camtrap_observations(identified(), [{"mediaID": "m0"}], **OPTIONS)
    with pytest.raises(ValueError, match="lack rows"):
        camtrap_observations(identified(), [], **OPTIONS)


def test_all_that_lies_below_a_label_has_its_type():
    rows = camtrap_observations(
        identified(), media(), observation_types={"Felidae": "human"}, **OPTIONS
    )
    assert [row["observationType"] for row in rows[:4]] == ["human", "human", "human", "animal"]
    assert rows[0]["scientificName"] == ""


def test_times_are_written_with_their_zone():
    shots = media()
    shots[0]["timestamp"] = datetime.fromisoformat("2024-05-01T10:00:00+00:00")
    rows = camtrap_observations(identified(), shots, **OPTIONS)
    assert rows[0]["eventStart"] == "2024-05-01T10:00:00Z"
    assert shots[0]["timestamp"].utcoffset() == timedelta(0)


def test_frictionless_finds_no_fault_with_the_observations(tmp_path):
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    for level in ("media", "event"):
        options = {"media": media(), "level": level, "observation_types": TYPES, **OPTIONS}
        write_export(identified(), tmp_path / f"{level}.csv", "camtrap-dp", **options)
        with (tmp_path / f"{level}.csv").open(newline="") as file:
            header = next(csv.reader(file))
        fields = []
        for name in header:
            kind, constraints = CAMTRAP[name]
            field = {"name": name, "type": kind, "constraints": constraints}
            fields.append(field | ({"format": "%Y-%m-%dT%H:%M:%S%z"} if kind == "datetime" else {}))
        descriptor = {
            "name": level,
            "path": f"{level}.csv",
            "schema": {"fields": fields, "primaryKey": ["observationID"]},
        }
        resource = frictionless.Resource.from_descriptor(descriptor, basepath=str(tmp_path))
        report = resource.validate()
        assert report.valid, report.flatten(["fieldName", "type", "message"])
        assert report.tasks[0].stats["rows"] == {"media": len(IDS), "event": 3}[level]
