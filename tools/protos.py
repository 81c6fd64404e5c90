"""Makes the Python of our .proto files. `python -m tools.protos` writes it, `--check` fails if it is not current."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
PROTOS = ("redrive/systems/pipeline/pipeline.proto",)
_MADE = ("_pb2.py", "_pb2.pyi")


def make(proto: str, directory: Path) -> None:
    """Messages and their types; the one method of the service is called by its name (wire.py)."""
    from grpc_tools import protoc

    known = str(files("grpc_tools") / "_proto")
    words = ["protoc", f"-I{SOURCE}", f"-I{known}", f"--python_out={directory}", f"--pyi_out={directory}", proto]
    if protoc.main(words) != 0:
        raise SystemExit(f"protoc does not take {proto}")


def stale(proto: str) -> list[str]:
    """What is not as protoc makes it now."""
    names = [proto.replace(".proto", ending) for ending in _MADE]
    with tempfile.TemporaryDirectory() as place:
        make(proto, Path(place))
        return [name for name in names if _read(SOURCE / name) != _read(Path(place) / name)]


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        for proto in PROTOS:
            make(proto, SOURCE)
        return 0
    found = [name for proto in PROTOS for name in stale(proto)]
    if found:
        sys.stderr.write(f"not current: {', '.join(found)}. Run `python -m tools.protos`.\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
