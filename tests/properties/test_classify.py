"""Every error gets a verdict, whatever hangs on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.flow.classify import RETRYABLE, Classifier, Verdict, classify_code, classify_text
from redrive.model import Category

NAMES = ("code", "status", "status_code", "response", "smtp_code", "recipients", "errno", "grpc_status_code")


def explode(*args: object) -> Any:
    raise RuntimeError("explode")


class Trap:
    """Whatever is done to it raises."""

    __getattr__ = __str__ = __repr__ = __hash__ = __bool__ = __iter__ = __len__ = explode
    __eq__ = __call__ = __int__ = __getitem__ = explode


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.builds(Trap),
    st.just(explode),
    st.sampled_from([400, 421, 503, 550, "UNAVAILABLE", "Throttling", "smtp:421", {"Error": {"Code": 5}}]),
)
garbage = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=5) | st.sampled_from(["Error", "Code"]), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(lambda value: lambda: value, inner),
        st.builds(lambda value: type("Thing", (), {"status_code": value, "name": value})(), inner),
    ),
    max_leaves=8,
)
builtin_errors = st.sampled_from([Exception, OSError, ValueError, ConnectionError, SystemExit, KeyError, RuntimeError])


@st.composite
def errors(draw: st.DrawFn, depth: int = 2) -> BaseException:
    attributes = draw(st.dictionaries(st.sampled_from(NAMES), garbage, max_size=4))
    traps = draw(st.sets(st.sampled_from((*NAMES, "__cause__", "__context__", "__class__")), max_size=2))
    hidden: dict[str, Any] = {name: property(explode) for name in traps}
    hidden |= dict.fromkeys(draw(st.sets(st.sampled_from(("__str__", "__bool__", "__eq__")))), explode)
    error = type(draw(st.sampled_from(["Odd", "TimeoutThing", "x"])), (draw(builtin_errors),), hidden)(draw(st.text()))
    for name in attributes.keys() - traps:
        error.__dict__[name] = attributes[name]
    if depth and draw(st.booleans()) and "__cause__" not in traps:
        error.__cause__ = draw(errors(depth - 1))
    if depth and draw(st.booleans()):
        members = [error, draw(errors(depth - 1))]
        with suppress(RuntimeError):  # Python itself refuses a group of some of them
            error = BaseExceptionGroup("group", members)
    assert isinstance(error, BaseException)
    return error


@given(errors(), st.sampled_from(Category))
def test_classify_is_total(error: BaseException, fallback: Category) -> None:
    verdict = Classifier(fallback=fallback)(error)
    assert type(verdict) is Verdict
    assert type(verdict.category) is Category
    assert verdict.retryable is (verdict.category in RETRYABLE)
    assert verdict.code is None or (type(verdict.code) is str and 0 < len(verdict.code) <= 64)


@given(st.text() | st.integers())
def test_any_code_can_be_asked_for(code: str | int) -> None:
    verdict = classify_code(code)
    assert verdict is None or verdict.code


@given(st.integers(400, 599), st.sampled_from(["smtp", "http"]))
def test_every_number_of_a_family_has_a_verdict(code: int, family: str) -> None:
    verdict = classify_code(code, family)
    assert verdict is not None
    assert verdict.code == str(code)


@given(st.text())
def test_any_text_can_be_asked_for(text: str) -> None:
    verdict = classify_text(text)
    assert verdict is None or verdict.retryable is (verdict.category in RETRYABLE)
