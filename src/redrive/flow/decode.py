"""From bytes to what a handler's annotation says, and from a value to bytes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from redrive.errors import ConfigError, UsageError
from redrive.flow.callables import function_of, is_async, name_of
from redrive.model import Message

Decoder: TypeAlias = Callable[..., Any]
"""Takes the bytes of a body, and the Message where it asks for it."""


def decoder_for(annotation: Any) -> Decoder:
    """How a body becomes that type. A type that no body can become is refused when the handler is registered."""
    if annotation is bytes:
        return as_is
    if annotation is str:
        return bytes.decode
    if hasattr(annotation, "model_validate_json"):  # a pydantic model, which we need not import to know
        return typing.cast(Decoder, annotation.model_validate_json)
    try:
        _refuse_strangers(msgspec.inspect.type_info(annotation))
        return msgspec.json.Decoder(annotation).decode
    except (TypeError, RecursionError) as error:
        raise ConfigError(
            f"a body cannot be decoded to {annotation!r} ({error}): annotate the parameter with dict, bytes, str, "
            f"a dataclass, a msgspec Struct or a pydantic model"
        ) from error


def _refuse_strangers(info: msgspec.inspect.Type) -> None:
    """A class that msgspec does not know is taken by its decoder, and then refused for each and every body."""
    if isinstance(info, msgspec.inspect.CustomType):
        raise TypeError(f"JSON does not become a {info.cls.__name__}")
    inner = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    several = [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    for part in (*inner, *several):
        if isinstance(part, msgspec.inspect.Type):
            _refuse_strangers(part)


def encode(value: Any) -> bytes:
    """The bytes of a body: bytes as they are, text as UTF-8, everything else as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        if isinstance(value, str):
            return value.encode()
        if hasattr(value, "model_dump_json"):
            return typing.cast(str, value.model_dump_json()).encode()
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a {type(value).__name__} cannot be sent: {error}") from error


class Signature(typing.NamedTuple):
    """What a handler takes."""

    decode: Decoder
    wants_message: bool  # a second parameter gets the Message itself


def decode_wants_message(decode: Decoder) -> bool:
    """Whether a decoder of the user's own takes the Message beside the bytes. One that takes neither is refused."""
    if not callable(decode):
        raise ConfigError(f"decode={decode!r}: it takes a function from the bytes of a body to a value")
    if is_async(decode):
        raise ConfigError(f"decode={name_of(decode)} is async: decode without waiting, and wait in the handler")
    try:
        parameters = inspect.signature(decode).parameters.values()
    except ValueError:
        return False  # a function of C that does not say what it takes
    required = sum(_counts(parameter) and parameter.default is parameter.empty for parameter in parameters)
    if required > 2 or not any(_takes(parameter) for parameter in parameters):
        raise ConfigError(
            f"decode={name_of(decode)}: it is called with the bytes of a body, and the Message if it has two parameters"
        )
    return required == 2


def signature_of(function: Callable[..., Any], decode: Decoder | None = None, *, without: str = "") -> Signature:
    """Read a handler's parameters: the body first, and if there is a second one, the message.

    decode   how the body becomes a value, instead of by the annotation
    without  a parameter that is given otherwise
    """
    _refuse_what_cannot_be_called(function)
    code = function_of(function)
    try:
        hints = typing.get_type_hints(code)
    except Exception as error:
        raise ConfigError(f"the annotations of {name_of(function)} cannot be read: {error}") from error
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigError(f"{name_of(function)} yields: nothing would run it, so write it without `yield`")
    names = _parameters(function, without)
    annotation = hints.get(names[0], Any)
    if annotation is Message:
        raise ConfigError(f"{name_of(function)}: the first parameter is the body, the Message is the second")
    return Signature(decoder_for(annotation) if decode is None else decode, len(names) == 2)


def batch_signature_of(function: Callable[..., Any], decode: Decoder | None = None) -> Signature:
    """The same of a batch handler: a list of bodies first, and if there is a second parameter, the list of Messages."""
    _, wants_messages = signature_of(function, decode or as_is)
    first = next(iter(inspect.signature(function).parameters))
    annotation = typing.get_type_hints(function).get(first, Any)
    item: Any = Any
    if annotation is Any or annotation is list:
        pass
    elif typing.get_origin(annotation) in (list, Sequence):
        [item] = typing.get_args(annotation)
    else:
        raise ConfigError(
            f"{name_of(function)} is a batch handler: its first parameter gets a list of bodies, so annotate it as "
            f"list[Order], and not as {getattr(annotation, '__name__', annotation)}"
        )
    if item is Message:
        raise ConfigError(
            f"{name_of(function)}: the first parameter is the list of bodies, that of Messages the second"
        )
    return Signature(decoder_for(item) if decode is None else decode, wants_messages)


def _refuse_what_cannot_be_called(function: Callable[..., Any]) -> None:
    """Refuse what is no function and has none, and what would only look as if it were handled."""
    if inspect.iscoroutine(function):
        function.close()
        raise ConfigError(f"{function.__qualname__}() was called: give the function itself, without the parentheses")
    if isinstance(function, classmethod | staticmethod | property):
        kind = type(function).__name__
        raise ConfigError(
            f"a {kind} is not a function before its class is made: register it below the class, "
            f"as in app.handler('orders')(Shop.charge)"
        )
    if inspect.isclass(function):
        raise ConfigError(
            f"{name_of(function)} is a class, and a call would only make an object of it: register an object that has "
            f"__call__, or one of its methods"
        )
    if not callable(function):
        raise ConfigError(f"{function!r} is no function: a handler is called with the body of each message")


def _parameters(function: Callable[..., Any], without: str = "") -> list[str]:
    """The names of the one or two parameters that a handler is called with, but for one that is given otherwise."""
    try:
        every = [p for p in inspect.signature(function).parameters.values() if p.name != without]
    except ValueError:
        raise ConfigError(f"{name_of(function)} does not say what it takes: call it in a function") from None
    required = [p for p in every if p.default is p.empty]
    for parameter in required:
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise ConfigError(
                f"{name_of(function)}: a handler is not called with {parameter.name!r}, give it a default"
            )
    names = [p.name for p in required if _counts(p)] or [p.name for p in every if _counts(p)][:1]
    if not names and any(p.kind is p.VAR_POSITIONAL for p in every):
        raise ConfigError(
            f"{name_of(function)} takes *{every[0].name}, which says nothing of the body: name the parameter, or put "
            f"functools.wraps on the decorator that hides it"
        )
    if names and names[0] in ("self", "cls") and inspect.isfunction(function):
        raise ConfigError(
            f"{name_of(function)} is a method without its object: register it of an object, as in "
            f"app.handler('orders')(shop.charge)"
        )
    if not 1 <= len(names) <= 2:
        raise ConfigError(
            f"{name_of(function)} takes {len(names)} parameters: a handler takes the body, and the Message"
        )
    return names


def _counts(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _takes(parameter: inspect.Parameter) -> bool:
    return _counts(parameter) or parameter.kind is parameter.VAR_POSITIONAL


def as_is(body: bytes) -> bytes:
    """The body itself."""
    return body
