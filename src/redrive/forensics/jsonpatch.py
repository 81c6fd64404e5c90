"""JSON Patch (RFC 6902) on a decoded document: six operations, each refused with the place where it does not fit.

Nothing is half done: the document that is given is not changed, the one that comes back has every operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from redrive.errors import UsageError
from redrive.untrusted import DEEPEST, TooDeep

Json: TypeAlias = Any
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_WITH_VALUE, _WITH_FROM = ("add", "replace", "test"), ("move", "copy")
_MOST_COPIED, _EACH = 16 << 20, 32
"""Characters that one patch may copy, of which every value counts some: each copy may double the document."""


class Operation(Struct, frozen=True, rename={"origin": "from"}):
    """One step of a patch. Fields that it does not need are ignored, as the RFC has it."""

    op: str
    path: str
    value: Json | UnsetType = UNSET
    origin: str | UnsetType = UNSET


class PatchRefused(UsageError):
    """An operation does not fit the document."""


def patched(document: Json, patch: Sequence[Operation], shown: Json | UnsetType = UNSET) -> Json:
    """The document after all the operations.

    shown   the document as whoever patches it is shown it, if something of it is masked for him: every operation has to
            fit that one too, and what differs between the two can neither be tested nor copied nor moved
    """
    holder, masked = [deepcopy(document)], [deepcopy(document if shown is UNSET else shown)]
    left = _MOST_COPIED
    for number, operation in enumerate(patch, start=1):
        try:
            _check(operation)
            _check_seen(holder, masked, operation)
            left = _check_size(holder, operation, left)
            if operation.op != "test":
                _apply(masked, operation)
            _apply(holder, operation)
        except (ValueError, LookupError, TypeError) as error:
            said = error.args[0] if error.args else error
            raise PatchRefused(f"operation {number} ({operation.op} {operation.path}): {said}") from None
    return holder[0]


def same(left: Json, right: Json) -> bool:
    """Whether both are equal as JSON: `1` is `1.0`, and neither is `true`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def found(document: Json, pointer: str) -> Json:
    """What stands at a pointer (RFC 6901); LookupError if nothing does."""
    for part in parts_of(pointer):
        document = document[_index(document, part)] if isinstance(document, list) else _member(document, part)
    return document


def parts_of(pointer: str) -> list[str]:
    """The parts of a pointer. An empty one is the whole document."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no pointer: it begins with /, as in /items/0/price")
    if "~" in pointer.replace("~0", "").replace("~1", ""):
        raise ValueError(f"{pointer!r}: ~ is written ~0, and / within a name ~1")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _check(operation: Operation) -> None:
    op = operation.op
    if op not in _OPERATIONS:
        raise ValueError(f"there is no such operation: it is one of {', '.join(_OPERATIONS)}")
    if op in _WITH_VALUE and operation.value is UNSET:
        raise ValueError("it has no value")
    if op in _WITH_FROM and operation.origin is UNSET:
        raise ValueError("it has no from")


def _check_seen(holder: list[Json], masked: list[Json], operation: Operation) -> None:
    """Refuse to read what is masked: a test would tell it, and so would a copy to where nothing is masked."""
    read = operation.path if operation.op == "test" else operation.origin
    reads = operation.op in ("test", *_WITH_FROM) and isinstance(read, str)
    if reads and not same(found(masked[0], str(read)), found(holder[0], str(read))):
        raise ValueError(f"{read or 'the document'} is masked for you, so it cannot be tested, copied or moved")


def _check_size(holder: list[Json], operation: Operation, left: int) -> int:
    """Refuse what would be too deep to be read again, and copies of copies; returns how much may still be copied."""
    is_from = operation.op in _WITH_FROM
    value = found(holder[0], str(operation.origin)) if is_from else operation.value
    if operation.op != "remove":
        weight = _weight(value, len(parts_of(operation.path)))
        left -= weight if operation.op == "copy" else 0
    if left < 0:
        raise ValueError(f"the patch copies more than {_MOST_COPIED >> 20} MB: send a new body")
    return left


def _weight(value: Json, level: int) -> int:
    """About how many characters a value at that level is. Raises TooDeep if it goes deeper than Redrive reads."""
    ahead, weight = [(value, level)], 0
    while ahead:
        node, level = ahead.pop()
        weight += _EACH
        if isinstance(node, str):
            weight += len(node)
        elif isinstance(node, dict | list):
            if level >= DEEPEST:
                raise TooDeep
            weight += sum(map(len, node)) if isinstance(node, dict) else 0
            ahead += [(inner, level + 1) for inner in (node.values() if isinstance(node, dict) else node)]
    return weight


def _apply(holder: list[Json], operation: Operation) -> None:
    path = operation.path
    match operation.op:
        case "add":
            _add(holder, path, deepcopy(operation.value))
        case "remove":
            _remove(holder, path)
        case "replace":
            found(holder[0], path)
            _replace(holder, path, deepcopy(operation.value))
        case "move":
            origin = str(operation.origin)
            if path.startswith(f"{origin}/"):
                raise ValueError("a value cannot be moved into itself")
            value = found(holder[0], origin)
            if path != origin:
                _remove(holder, origin)
                _add(holder, path, value)
        case "copy":
            _add(holder, path, deepcopy(found(holder[0], str(operation.origin))))
        case "test" if not same(found(holder[0], path), operation.value):
            raise ValueError("the value there is another")


def _add(holder: list[Json], path: str, value: Json) -> None:
    if not path:
        holder[0] = value
        return
    parent, last = _parent(holder, path)
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, at_end=True), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise LookupError("what is around it is neither an object nor an array")


def _replace(holder: list[Json], path: str, value: Json) -> None:
    if not path:
        holder[0] = value
        return
    parent, last = _parent(holder, path)
    parent[_index(parent, last) if isinstance(parent, list) else last] = value


def _remove(holder: list[Json], path: str) -> None:
    if not path:
        raise ValueError("the whole document cannot be removed: a body has to be something")
    parent, last = _parent(holder, path)
    if isinstance(parent, list):
        del parent[_index(parent, last)]
    else:
        _member(parent, last)
        del parent[last]


def _parent(holder: list[Json], path: str) -> tuple[Json, str]:
    around, _, _ = path.rpartition("/")
    return found(holder[0], around), parts_of(path)[-1]


def _member(document: Json, name: str) -> Json:
    if not isinstance(document, dict) or name not in document:
        raise LookupError(f"there is no {name!r}")
    return document[name]


def _index(array: list[Json], part: str, *, at_end: bool = False) -> int:
    if not (part.isascii() and part.isdigit()) or (part != "0" and part.startswith("0")):
        raise LookupError(f"{part!r} is no place in an array")
    if int(part) >= len(array) + at_end:
        raise LookupError(f"the array has {len(array)} items: there is no {part}")
    return int(part)


def patch_between(old: Json, new: Json, path: str = "") -> list[Operation]:
    """The operations that make the one of the other, and touch nothing that is the same in both."""
    if same(old, new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [Operation("remove", f"{path}/{_escaped(name)}") for name in old if name not in new]
        added = [Operation("add", f"{path}/{_escaped(name)}", new[name]) for name in new if name not in old]
        both = [name for name in new if name in old]
        inner = [step for name in both for step in patch_between(old[name], new[name], f"{path}/{_escaped(name)}")]
        return [*gone, *added, *inner]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [step for place, (left, right) in pairs for step in patch_between(left, right, f"{path}/{place}")]
    return [Operation("replace", path, new)]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
