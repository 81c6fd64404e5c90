"""One cause is one group; another cause is another group."""

from __future__ import annotations

import json
import re
import traceback
import types
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.config import durations
from redrive.forensics.fingerprint import fingerprint, normalise, own_frames, stack_text
from redrive.model import Category, Failure

FAILURE = Failure(
    type="ValueError",
    message="order 4711 of ann@x.org is unknown",
    category=Category.VALIDATION,
    retryable=False,
    at=datetime(2024, 1, 2, tzinfo=UTC),
    attempt=1,
    frames=("shop:charge",),
)
HERE = __name__


_MARKS = re.compile(r" *[~^]*\^[~^]*")  # which Python puts under a line, and we leave out


def caught(raising: Callable[[], object]) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError("it should have raised")


def test_ids_and_customers_do_not_split_a_group() -> None:
    other = replace(FAILURE, message="order 99 of bob@y.com is unknown", attempt=3, worker="b", version="2")
    assert fingerprint(other) == fingerprint(FAILURE)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "KeyError"},
        {"message": "order 4711 of ann@x.org is closed"},
        {"frames": ("shop:refund",)},
        {"frames": ("shop:handle", "shop:charge")},
        {"code": "503"},
    ],
)
def test_another_type_message_code_or_path_is_another_group(change: dict[str, Any]) -> None:
    assert fingerprint(replace(FAILURE, **change)) != fingerprint(FAILURE)


def test_it_is_short_and_stays_the_same_for_ever() -> None:
    assert fingerprint(FAILURE) == "iz7llva6lpgk"


def test_lone_surrogates_have_a_fingerprint() -> None:
    assert fingerprint(replace(FAILURE, message="\ud800"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("order 4711 not found", "order # not found"),
        ("took 1.5e-3 s, not -2", "took # s, not #"),
        ("id 3fa85f64-5717-4562-b3fc-2c963f66afa6", "id #"),
        ("id ABCDEFAB-ABCD-ABCD-ABCD-ABCDEFABCDEF", "id #"),
        ("commit deadbeefcafe at 0xff", "commit # at #"),
        ("ulid 01ARZ3NDEKTSV4RRFFQ69G5FAV gone", "ulid # gone"),
        ("10.0.0.1:80 and fe80::1 and ::1", "# and # and #"),
        ("mac aa:bb:cc:dd:ee:ff", "mac #"),
        ("2024-01-02T10:00:00.123Z x", "# x"),
        ("2024-01-02 10:00:00+02:00 x", "# x"),
        ("no user ann.lee+shop@x.co.uk here", "no user # here"),
        ("GET https://x.org/customers/42/orders?a=b&c=d failed", "GET https://x.org/customers/#/orders?# failed"),
        ("cannot open /var/lib/shop/ann.json", "cannot open #"),
        (r"cannot open C:\shop\ann.json", "cannot open #"),
        ("unknown customer 'Ann Lee'", "unknown customer '#'"),
        ('bad value "4711" in `a b`', 'bad value "#" in `#`'),
        ("'customer_id'", "'customer_id'"),
        ("'NoneType' object has no attribute 'foo'", "'NoneType' object has no attribute 'foo'"),
        ("can't find 'Ann Lee', can't go on", "can't find '#', can't go on"),
        ("values [1, 2, 3]", "values [#]"),
        ("a\n\t b   c ", "a b c"),
        ("", ""),
    ],
)
def test_what_varies_is_left_out(message: str, expected: str) -> None:
    assert normalise(message) == expected


def test_a_long_message_counts_by_its_beginning() -> None:
    assert len(normalise("word " * 1000)) <= 500
    assert normalise("word " * 1000) == normalise("word " * 2000)


def test_frames_are_named_by_module_and_function_innermost_last() -> None:
    def outer() -> None:
        inner()

    def inner() -> None:
        raise RuntimeError

    prefix = f"{HERE}:test_frames_are_named_by_module_and_function_innermost_last"
    assert own_frames(caught(outer)) == (f"{HERE}:caught", f"{prefix}.outer", f"{prefix}.inner")
    assert own_frames(caught(outer), limit=1) == (f"{prefix}.inner",)


def test_frames_of_libraries_are_left_out() -> None:
    assert own_frames(caught(lambda: json.loads("{")))[-1].endswith(".lambda")


def test_frames_of_redrive_are_left_out() -> None:
    assert own_frames(caught(lambda: durations.duration("x")))[-1].endswith(".lambda")


def test_lambdas_and_comprehensions_have_steady_names() -> None:
    frames = own_frames(caught(lambda: [1 / value for value in (0,)]))
    assert frames == (
        f"{HERE}:caught",
        f"{HERE}:test_lambdas_and_comprehensions_have_steady_names.lambda",
    )


def test_the_depth_of_a_recursion_does_not_matter() -> None:
    def down(depth: int) -> int:
        return down(depth - 1) if depth else 1 // 0

    assert own_frames(caught(lambda: down(3))) == own_frames(caught(lambda: down(30)))


def _module_in(path: Path, name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def _without_own_frames(error: BaseException) -> BaseException:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)


def test_an_application_installed_as_a_package_still_has_frames(tmp_path: Path) -> None:
    module = _module_in(tmp_path / "site-packages" / "shop.py", "shop", "def charge(): raise RuntimeError")
    assert own_frames(_without_own_frames(caught(module.charge))) == ("shop:charge",)


def test_a_script_has_the_name_of_its_file(tmp_path: Path) -> None:
    module = _module_in(tmp_path / "shop.py", "__main__", "def charge(): raise RuntimeError")
    assert own_frames(caught(module.charge))[-1] == "shop:charge"


def test_an_error_that_was_never_raised_has_no_frames() -> None:
    assert own_frames(ValueError("x")) == ()


def test_the_stack_has_the_causes() -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    text = stack_text(caught(fail))
    assert text.index("KeyError: 'inner'") < text.index("direct cause") < text.index("RuntimeError: outer")


def _chained() -> None:
    try:
        int("x")
    except ValueError as error:
        raise KeyError("y") from error


def _hushed() -> None:
    try:
        int("x")
    except ValueError:
        raise KeyError("y") from None


def _noted() -> None:
    error = ValueError("two\nlines")
    error.add_note("and a note")
    raise error


def _deep(levels: int) -> None:
    if levels:
        _deep(levels - 1)
    raise ValueError("deep")


@pytest.mark.parametrize(
    "fail",
    [
        lambda: int("x"),
        lambda: json.loads("{"),
        lambda: eval("1 / 0"),
        lambda: json.lods,  # type: ignore[attr-defined]
        lambda: _deep(2),
        lambda: _deep(20),
        _chained,
        _hushed,
        _noted,
    ],
)
def test_the_stack_is_what_python_prints(fail: Callable[[], object]) -> None:
    error = caught(fail)
    printed = "".join(traceback.format_exception(error)).splitlines()
    assert stack_text(error).splitlines() == [line for line in printed if not _MARKS.fullmatch(line)]


def test_a_module_loaded_again_shows_its_new_line(tmp_path: Path) -> None:
    for text in ("the first", "the second"):
        path, source = tmp_path / "changing.py", f"def fail():\n    raise ValueError('{text}')\n"
        path.write_text(source)
        module = _module_in(path, "changing", source)
        assert f"raise ValueError('{text}')" in stack_text(caught(module.fail))


def test_the_stack_starts_where_the_users_code_starts() -> None:
    namespace: dict[str, Any] = {}
    handler = _module_in(Path("shop.py"), "shop", "def charge(): raise RuntimeError('no')").charge
    exec(compile("def run(f): f()", durations.__file__, "exec"), namespace)
    text = stack_text(_without_own_frames(caught(lambda: namespace["run"](handler))))
    assert "durations.py" not in text
    assert 'File "shop.py", line 1, in charge' in text


def test_an_error_of_redrive_itself_keeps_its_frames() -> None:
    assert "durations.py" in stack_text(_without_own_frames(caught(lambda: durations.duration("x"))))


def test_a_long_stack_keeps_its_head_and_its_tail() -> None:
    def fail() -> None:
        raise RuntimeError("x" * 5000 + "THE END")

    text = stack_text(caught(fail), limit=1000)
    assert len(text) <= 1000
    assert text.startswith("Traceback")
    assert text.endswith("THE END\n")
    assert "characters left out" in text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Faceless(Exception):
    __module__ = property(lambda self: 1 / 0)
    __notes__ = property(lambda self: 1 / 0)
    __cause__ = property(lambda self: 1 / 0)


@pytest.mark.parametrize("error", [Unprintable(), Faceless("x"), ValueError("\ud800 \0"), SystemExit()])
def test_a_stack_can_always_be_had(error: BaseException) -> None:
    text = stack_text(error)
    assert type(error).__name__ in text
    text.encode()
