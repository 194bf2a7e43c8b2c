"""Evidence from studies: in an output folder, or in any Optuna storage."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from routewright.errors import ModelError, RoutewrightError
from routewright.files import file_sha256
from routewright.priors.evidence import Evidence, Origin, evidence_of
from routewright.priors.features import ModelFeatures, features_of_file
from routewright.priors.files import PriorError
from routewright.records import Phase, TrialRecord
from routewright.search.base import history_of
from routewright.settings import resolve_model
from routewright.storage import close_storage, open_storage
from routewright.study import MARK, load_study, our_studies
from routewright.studyfile import read_study_note, storage_in

FEATURES = "features"
"""Study attribute with the features of the model."""

BUILT_BY = "built_by"
"""Study attribute with the backend that built the engines, where the study replayed them."""

KNOB_DEFAULTS = "knob_defaults"
"""Study attribute with the default of every knob."""

FEWEST_TRIALS = 3
"""A study with fewer finished trials says nothing."""


def is_output_folder(path: Path) -> bool:
    """Tell whether a folder is one that a tuning wrote."""
    return (path / "study.json").is_file()


def evidence_of_folder(path: Path, *, family: str = "") -> Evidence:
    """Return what the study of an output folder says.

    Raises:
        RoutewrightError: There is none, or it cannot be read.
    """
    note = read_study_note(path)
    url = storage_in(path, note.get("storage"))
    (found,) = evidence_of_storage(url, studies=[str(note["study"])], family=family)
    return found


def evidence_of_storage(
    url: str, *, studies: Sequence[str] = (), family: str = ""
) -> list[Evidence]:
    """Return what each study of ours in a storage says, those with too few trials left out.

    Args:
        url: The storage.
        studies: Names of the studies; none: all of ours.
        family: Family of the models; empty: what each study says.

    Raises:
        RoutewrightError: The storage cannot be read, or holds no study that says anything.
    """
    storage = open_storage(url, existing=True)
    try:
        names = list(studies) or sorted(our_studies(storage))
        if not names:
            raise PriorError("the storage holds no study of Routewright's")
        found = [evidence_of_study(load_study(storage, name), family=family) for name in names]
    finally:
        close_storage(storage)
    told = [evidence for evidence in found if evidence.trials >= FEWEST_TRIALS]
    if not told:
        raise PriorError(
            f"nothing can be learned from {', '.join(studies) or url}: no study of at least "
            f"{FEWEST_TRIALS} finished trials"
        )
    return told


def evidence_of_study(study: optuna.Study, *, family: str = "") -> Evidence:
    """Return what one study says."""
    attributes = study.user_attrs
    records = history_of(study).records
    return evidence_of(study_origin(study.study_name, attributes, records, family), records)


def study_origin(
    name: str, attributes: Mapping[str, Any], records: Sequence[TrialRecord], family: str = ""
) -> Origin:
    """Return where a study's evidence comes from, as its attributes say."""
    identity = _mapping(attributes.get(MARK))
    settings = _mapping(attributes.get("settings"))
    bound = _mapping(identity.get("bound"))
    imported = _mapping(identity.get("imported"))
    model = str(settings.get("model") or imported.get("model") or "")
    return Origin(
        name=name,
        kind="cache" if imported else "study",
        backend=str(attributes.get(BUILT_BY) or identity.get("backend", "")),
        tuner_version=str(_mapping(identity.get("knobs")).get("tuner_version", "unknown")),
        model=Path(model).name,
        model_sha256=identity.get("model_sha256"),
        family=family or str(settings.get("family") or ""),
        features=_features(attributes, identity, model),
        environment=_mapping(identity.get("environment")),
        loss=str(bound.get("loss", "")),
        threshold=float(bound.get("threshold", math.inf)),
        baseline_ms=next((r.latency_ms for r in records if r.phase is Phase.BASELINE), None),
        defaults={
            str(knob): str(value)
            for knob, value in _mapping(attributes.get(KNOB_DEFAULTS)).items()
        },
    )


def _features(
    attributes: Mapping[str, Any], identity: Mapping[str, Any], model: str
) -> ModelFeatures | None:
    """Return the features kept with the study, or those of its model where that is still there."""
    stored = attributes.get(FEATURES)
    if isinstance(stored, Mapping):
        with contextlib.suppress(ValueError):
            return ModelFeatures.from_dict(stored)
    if not model:
        return None
    with contextlib.suppress(RoutewrightError, OSError):
        path = Path(resolve_model(model))
        if file_sha256(path) == identity.get("model_sha256"):
            return features_of_file(path, _mapping(identity.get("shapes")))
    return None


def model_features(path: Path, shapes: Mapping[str, Sequence[int]]) -> ModelFeatures | None:
    """Return a model's features, or None where its graph cannot be described."""
    try:
        return features_of_file(path, shapes)
    except ModelError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
