"""Tables of biodiversity: rank columns, Darwin Core occurrences, Camtrap DP observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np

from ..taxonomy.labels import Label
from ..taxonomy.names import Name, is_blank, shown
from .identifications import Identifications, level_names

Row = dict[str, Any]

# Terms of Darwin Core for names at a rank.
_RANK_TERMS = {
    "kingdom", "phylum", "class", "order", "superfamily", "family", "subfamily", "tribe",
    "subtribe", "genus", "subgenus",
}  # fmt: skip
# Columns of a table of ranks beside the levels.
_BESIDE_LEVELS = ("file_name", "score", "rank")
# Those of Camtrap DP.
OBSERVATION_TYPES = ("animal", "human", "vehicle", "blank", "unknown", "unclassified")


def rank_table(identifications: Identifications, k: int = 1) -> list[Row]:
    """Return a row for each image with a column for each rank and the score.

    Parameters
    ----------
    identifications : Identifications
        What to write. Ranks below an ancestor are empty.
    k : int, default=1
        With more than 1, rows for the k most probable leaves of each image instead.

    Returns
    -------
    rows : list of dict
        ``file_name``, the levels, ``score``, and with one row for an image ``rank``, the level at
        which it is identified. The column of a level with one of these names begins with
        ``level_``.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, rank_table
    >>> tree = Taxonomy.from_paths(
    ...     [("Felidae", "Lynx lynx"), ("Felidae", "Puma concolor"), ("Canidae", "Vulpes vulpes")],
    ...     level_names=("family", "species"))
    >>> found = Identifications.from_proba([[0.7, 0.25, 0.05]], tree, ["1.jpg"])
    >>> rank_table(found)[0]["species"], rank_table(found, k=2)[1]["species"]
    ('Lynx lynx', 'Puma concolor')
    """
    tree, levels = identifications.taxonomy, level_names(identifications.taxonomy)
    levels = _level_columns(levels)
    if k == 1:
        return [
            {"file_name": name, **_ranks(path, levels), "score": _rounded(score), "rank": rank}
            for name, path, score, rank in zip(
                identifications.ids,
                identifications.paths,
                identifications.probability,
                identifications.levels,
                strict=True,
            )
        ]
    if not 1 <= k <= tree.n_leaves:
        raise ValueError(f"k must lie between 1 and the {tree.n_leaves} leaves, got {k!r}.")
    best = np.argsort(-identifications.leaf_probability, axis=1, kind="stable")[:, :k]
    return [
        {
            "file_name": name,
            **_ranks(tree._index.path(int(tree.leaf_nodes[leaf])), levels),
            "score": _rounded(identifications.leaf_probability[row, leaf]),
        }
        for row, name in enumerate(identifications.ids)
        for leaf in best[row].tolist()
    ]


def _level_columns(levels: Sequence[str]) -> list[str]:
    """Return a column for each level: its name, with "level_" before it until no other has it."""
    columns: list[str] = []
    for name in levels:
        while name in (*_BESIDE_LEVELS, *columns):
            name = f"level_{name}"
        columns.append(name)
    return columns


def darwin_core_occurrences(
    identifications: Identifications,
    *,
    identified_by: str,
    date_identified: str | None = None,
    status: str = "unverified",
    review_below: float | None = None,
    basis_of_record: str = "MachineObservation",
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[Row]:
    """Return a Darwin Core occurrence for each image.

    Parameters
    ----------
    identifications : Identifications
        What to write.
    identified_by : str
        Name and version of the model.
    date_identified : str, default=None
        ISO date of the identification; None leaves it out.
    status : str, default="unverified"
        ``identificationVerificationStatus``.
    review_below : float, default=None
        Records of a smaller probability have "requires verification" as status instead.
    basis_of_record : str, default="MachineObservation"
        ``basisOfRecord``.
    columns : mapping of str to sequence, default=None
        Further terms, such as ``eventDate``, one value for each image.

    Returns
    -------
    rows : list of dict
        A record that stops above all levels has the root's name, or "incertae sedis" where that
        is no name of a taxon.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, darwin_core_occurrences
    >>> tree = Taxonomy.from_paths([("Felidae", "Lynx lynx"), ("Felidae", "Puma concolor")],
    ...                            level_names=("family", "species"))
    >>> found = Identifications.from_proba([[0.7, 0.3]], tree, ["1.jpg"], thresholds={2: 0.8})
    >>> row = darwin_core_occurrences(found, identified_by="cats 1.0")[0]
    >>> row["scientificName"], row["taxonRank"], row["identificationVerificationStatus"]
    ('Felidae', 'family', 'unverified')
    """
    tree, levels = identifications.taxonomy, level_names(identifications.taxonomy)
    terms = [level for level in levels if level in _RANK_TERMS]
    further = _check_further(columns, len(identifications))
    top = "incertae sedis" if tree.root_name in ("root", "(root)") else tree.root_name
    rows = []
    for index, (name, path, probability) in enumerate(
        zip(identifications.ids, identifications.paths, identifications.probability, strict=True)
    ):
        ranks = _ranks(path, levels)
        checked = review_below is None or probability >= review_below
        rows.append(
            {
                "occurrenceID": name,
                "basisOfRecord": basis_of_record,
                "occurrenceStatus": "present",
                "scientificName": path[-1] if path else top,
                "taxonRank": identifications.levels[index] if tree.level_names else "",
                **{term: ranks[term] for term in terms},
                "higherClassification": " | ".join(map(str, path[:-1])),
                "associatedMedia": name,
                "identifiedBy": identified_by,
                "dateIdentified": date_identified or "",
                "identificationVerificationStatus": status if checked else "requires verification",
                "identificationRemarks": _remarks(identifications, index),
                **{term: values[index] for term, values in further.items()},
            }
        )
    return rows


def camtrap_observations(
    identifications: Identifications,
    media: Any,
    *,
    classified_by: str,
    timestamp: str | None = None,
    level: str = "media",
    event_gap: float = 120.0,
    dependence: float = 0.0,
    observation_types: Mapping[Label, str] | None = None,
) -> list[Row]:
    """Return observations for a Camtrap DP, of each image or of each event.

    Parameters
    ----------
    identifications : Identifications
        What to write; its ids are the ``mediaID`` or ``filePath`` of the media, or end in a file
        name that only one of them has.
    media : DataFrame or list of dict
        The table of media: ``mediaID``, ``deploymentID``, ``timestamp``, and if there are any
        ``filePath`` and ``eventID``. Rows of other media are passed over.
    classified_by : str
        Name and version of the model.
    timestamp : str, default=None
        When it was classified, such as "2024-05-01T12:00:00Z"; None leaves it out.
    level : {"media", "event"}, default="media"
        Whether an observation is of an image, or of all images of an event, whose opinions are
        fused (:meth:`Identifications.fuse`).
    event_gap : float, default=120.0
        Where the media have no ``eventID``: images of one deployment belong to one event if
        fewer seconds than this lie between them.
    dependence : float, default=0.0
        Correlation of the images of an event, for the fusion.
    observation_types : mapping of labels to str, default=None
        Type of what is no animal, such as ``{"empty": "blank", "person": "human"}``; all below a
        label are of its type. The root is of type "unknown".

    Returns
    -------
    rows : list of dict

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, camtrap_observations
    >>> tree = Taxonomy.flat(["Lynx lynx", "blank"])
    >>> found = Identifications.from_proba([[0.9, 0.1], [0.2, 0.8]], tree, ["m1", "m2"])
    >>> media = [{"mediaID": "m1", "deploymentID": "d1", "timestamp": "2024-05-01T12:00:00Z"},
    ...          {"mediaID": "m2", "deploymentID": "d1", "timestamp": "2024-05-01T12:30:00Z"}]
    >>> rows = camtrap_observations(found, media, classified_by="cats 1.0",
    ...                             observation_types={"blank": "blank"})
    >>> [(row["observationType"], row["scientificName"]) for row in rows]
    [('animal', 'Lynx lynx'), ('blank', '')]
    """
    if level not in ("media", "event"):
        raise ValueError(f"level must be 'media' or 'event', got {level!r}.")
    kinds = _kinds(identifications, observation_types)
    shots = _match_media(identifications.ids, media)
    events = _events(shots, event_gap)
    times: dict[str, list[datetime]] = {}
    for shot, event in zip(shots, events, strict=True):
        times.setdefault(event, []).append(shot["time"])
    found, ids = identifications, list(events)
    if level == "event":
        found = identifications.fuse(np.asarray(events), dependence=dependence)
        ids = list(found.ids)
    deployments = {event: shot["deploymentID"] for event, shot in zip(events, shots, strict=True)}
    rows = []
    for index, (event, path, probability) in enumerate(
        zip(ids, found.paths, found.probability, strict=True)
    ):
        kind = kinds[int(found.nodes[index])]
        span = [shots[index]["time"]] if level == "media" else times[event]
        media_id = shots[index]["mediaID"] if level == "media" else ""
        rows.append(
            {
                "observationID": f"{media_id or event}:{level}",
                "deploymentID": deployments[event],
                "mediaID": media_id,
                "eventID": event,
                "eventStart": _written(min(span)),
                "eventEnd": _written(max(span)),
                "observationLevel": level,
                "observationType": kind,
                "scientificName": path[-1] if kind == "animal" and path else "",
                "count": "",
                "classificationMethod": "machine",
                "classifiedBy": classified_by,
                "classificationTimestamp": timestamp or "",
                "classificationProbability": _rounded(probability),
                "observationTags": _tags(found, index),
                "observationComments": "",
            }
        )
    return rows


# Parts -------------------------------------------------------------------------------------------


def _ranks(path: Sequence[Name], levels: Sequence[str]) -> Row:
    return dict(zip(levels, [*path, *[""] * (len(levels) - len(path))], strict=True))


def _rounded(value: float) -> float:
    return round(float(value), 6)  # more than float32 knows


def _check_further(
    columns: Mapping[str, Sequence[Any]] | None, n_rows: int
) -> dict[str, Sequence[Any]]:
    further: dict[str, Sequence[Any]] = (
        {} if columns is None else {name: list(columns[name]) for name in columns}
    )
    wrong = {name: len(values) for name, values in further.items() if len(values) != n_rows}
    if wrong:
        raise ValueError(f"columns must hold {n_rows} values each, one for an image, got {wrong}.")
    return further


def _remarks(found: Identifications, index: int) -> str:
    text = f"probability {found.probability[index]:.3f}"
    if found.vacuity is not None:
        text += f"; vacuity {found.vacuity[index]:.3f}"
    if found.thresholds is not None:
        asked = ", ".join(f"{level} {value:g}" for level, value in found.thresholds.items())
        text += f"; thresholds {asked}"
    return text


def _tags(found: Identifications, index: int) -> str:
    tags = [f"rank:{found.levels[index] or 'none'}"]
    if found.vacuity is not None:
        tags.append(f"vacuity:{found.vacuity[index]:.3f}")
    return " | ".join(tags)


def _kinds(found: Identifications, types: Mapping[Label, str] | None) -> list[str]:
    """Return the observation type of every node."""
    tree = found.taxonomy
    kinds = ["unknown", *["animal"] * (tree.n_nodes - 1)]
    for label, kind in (types or {}).items():
        if kind not in OBSERVATION_TYPES:
            raise ValueError(
                f"An observation type must be one of {list(OBSERVATION_TYPES)}, got {kind!r} for "
                f"{label!r}."
            )
        top, starts = tree.node(label), tree.leaf_start
        inside = (starts >= starts[top]) & (starts < tree.leaf_stop[top])
        for node in np.flatnonzero(inside & (tree.depths >= tree.depths[top])).tolist():
            kinds[node] = kind
    return kinds


def _match_media(ids: Sequence[str], media: Any) -> list[Row]:
    """Return the row of the media table for each image, with its time."""
    rows = media.to_dict("records") if hasattr(media, "to_dict") else list(media)
    needed = ("mediaID", "deploymentID", "timestamp")
    missing = [name for name in needed if rows and name not in rows[0]]
    if missing or not rows:
        raise ValueError(
            f"The media must have the columns {list(needed)}, and lack {missing or 'rows'}. Give "
            "the table media.csv of the Camtrap DP."
        )
    known = {str(row["mediaID"]): row for row in rows}
    for row in rows:
        if not is_blank(row.get("filePath")):
            known.setdefault(str(row["filePath"]), row)
    # Folders differ between the package and the disk: a file name does where it is the only one.
    files = [_file_name(str(row.get("fileName") or row.get("filePath") or "")) for row in rows]
    counts = Counter(files)
    by_file = {file: row for file, row in zip(files, rows, strict=True) if counts[file] == 1}
    found = [known.get(name) or by_file.get(_file_name(name)) for name in ids]
    unknown = [name for name, row in zip(ids, found, strict=True) if row is None]
    if unknown:
        raise ValueError(
            f"{len(unknown)} image(s) are neither a mediaID nor a file of the media, first "
            f"{shown(unknown[:3])}. Use one of these as ids."
        )
    return [
        {
            **row,
            "mediaID": str(row["mediaID"]),
            "deploymentID": str(row["deploymentID"]),
            "time": _time(row),
        }
        for row in found
        if row is not None
    ]


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _time(row: Row) -> datetime:
    given = row["timestamp"]
    try:
        time = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise ValueError(
            f"The timestamp of {row['mediaID']!r} must be a date and time with a time zone, such "
            f"as '2024-05-01T12:00:00Z', got {given!r}."
        )
    return time


def _written(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _events(shots: Sequence[Row], gap: float) -> list[str]:
    """Return the event of each image: as given, or images of a deployment close in time."""
    if all(not is_blank(shot.get("eventID")) for shot in shots):
        return [str(shot["eventID"]) for shot in shots]
    events = [""] * len(shots)
    in_order = sorted(range(len(shots)), key=lambda i: (shots[i]["deploymentID"], shots[i]["time"]))
    for place, members in groupby(in_order, key=lambda i: shots[i]["deploymentID"]):
        number, last = 1, None
        for one in members:
            time = shots[one]["time"]
            number += last is not None and time - last >= timedelta(seconds=gap)
            events[one], last = f"{place}-{number}", time
    return events
