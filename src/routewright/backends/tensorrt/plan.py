"""Plans on disk: a plan file with a manifest that says what it is and where it may run."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.errors import BackendError
from routewright.files import write_bytes_atomic, write_text_atomic

MANIFEST_NAME = "manifest.json"
KERNELS_NAME = "kernels.cache"
MANIFEST_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Site:
    """What a plan depends on.

    Attributes:
        library: Title of the library, for example ``"TensorRT"``.
        version: Its version.
        device: Name of the device, or None where there is none.
        compute_capability: For example ``"9.0"``, or None.
        driver: The driver's version, or None.
    """

    library: str
    version: str
    device: str | None
    compute_capability: str | None
    driver: str | None


def write_artifact(
    folder: Path, plan: Path, manifest: Mapping[str, Any], *, kernels: bytes = b""
) -> list[Path]:
    """Copy a plan into ``folder`` with its manifest.

    Args:
        folder: An existing folder.
        plan: The plan file.
        manifest: What to say about it; the plan's name, size and SHA-256 are added.
        kernels: Kernels compiled at run time, so that the first start elsewhere is quick.
    """
    target = folder / plan.name
    shutil.copyfile(plan, target)
    written = [target]
    if kernels:
        write_bytes_atomic(folder / KERNELS_NAME, kernels)
        written.append(folder / KERNELS_NAME)
    content = {
        "schema_version": MANIFEST_SCHEMA,
        "plan": {
            "file": target.name,
            "bytes": target.stat().st_size,
            "sha256": file_sha256(target),
        },
        **manifest,
    }
    path = folder / MANIFEST_NAME
    write_text_atomic(path, json.dumps(content, indent=2) + "\n")
    return [*written, path]


def add_to_manifest(folder: Path, additions: Mapping[str, Any]) -> None:
    """Add what is known only after the build, for example the timing result and the command.

    Raises:
        BackendError: There is no manifest in ``folder``.
        StorageError: It cannot be written.
    """
    content = {**read_manifest(folder), **additions}
    write_text_atomic(folder / MANIFEST_NAME, json.dumps(content, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest in ``folder``.

    Raises:
        BackendError: It is missing or unreadable.
    """
    path = folder / MANIFEST_NAME
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BackendError(
            f"{path} cannot be read ({error.strerror}); a plan without manifest is not loaded"
        ) from error
    except ValueError as error:
        raise BackendError(f"{path} is no manifest: {error}; save the engine again") from error
    if not isinstance(content, dict) or not isinstance(content.get("plan"), dict):
        raise BackendError(f"{path} is no manifest: it describes no plan; save the engine again")
    return content


def checked_plan(folder: Path, here: Site) -> Path:
    """Return the plan in ``folder`` if it may be loaded here.

    Raises:
        BackendError: The manifest is missing, the file is not the one it describes, or it was
            built for another library, version or device; the message names the difference.
    """
    manifest = read_manifest(folder)
    described = manifest["plan"]
    plan = folder / Path(str(described.get("file"))).name
    if not plan.is_file():
        raise BackendError(f"{plan} is missing; its manifest is there, so copy the folder again")
    if described.get("sha256") != file_sha256(plan):
        raise BackendError(f"{plan} is not the file that its manifest describes; save it again")
    reason = mismatch(manifest, here)
    if reason:
        raise BackendError(f"{plan} cannot be loaded here: {reason}; build the route again here")
    return plan


def mismatch(manifest: Mapping[str, Any], here: Site) -> str:
    """Return why a plan with this manifest cannot run ``here``, or an empty string."""
    library = manifest.get("library") or {}
    device = manifest.get("device") or {}
    compatible = manifest.get("compatibility") or {}
    if library.get("name") != here.library:
        return f"it is of {library.get('name')}, not of {here.library}"
    if library.get("version") != here.version and not compatible.get("version_compatible"):
        return f"it is of {here.library} {library.get('version')}, and this is {here.version}"
    found = here.compute_capability
    if found is None:
        return "there is no CUDA device"
    if compatible.get("portable"):
        return ""
    level = compatible.get("hardware_compatibility", "none")
    built_for = device.get("compute_capability")
    if level == "ampere_plus":
        too_old = _numbers(found) < (8, 0)
        return f"it needs compute capability 8.0 or later, this device has {found}" * too_old
    if built_for != found:
        return f"it is for compute capability {built_for}, this device has {found}"
    if level == "none" and device.get("name") != here.device:
        return f"it is for {device.get('name')}, this device is {here.device}"
    return ""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))
