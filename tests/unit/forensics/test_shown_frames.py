"""Traces as a page shows them: whose frames, over which lines, and where to look first."""

from __future__ import annotations

import pytest

from redrive.forensics.stacks.shown import place_of, shown_frames

PYTHON = """Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/redrive/flow/attempt.py", line 37, in attempt
    await handler.call(body)
  File "/app/shop.py", line 4, in charge
    pay(
    ~~~^
  File "/work/src/redrive/app.py", line 9, in call
KeyError: 'region'"""
JAVA = """com.shop.Declined: no
\tat com.shop.Cards.pay(Cards.java:12)
\tat org.springframework.web.Filter.run(Filter.java:3)
\t... 2 more"""
NODE = """Error: no
    at Cart.total (/app/shop.js:4:41)
    at run (node:internal/process:1:2)"""
DOTNET = """Shop.Declined: no
   at System.Net.Http.Send(String name)
   at Shop.Orders.Charge(String name) in /src/Orders.cs:line 42"""
GO = """panic: no

goroutine 1 [running]:
main.(*Cart).Total(0xc000)
\t/src/main.go:4 +0x1d
runtime.main()
\t/usr/local/go/src/runtime/proc.go:250 +0x1"""


@pytest.mark.parametrize(
    ("stack", "frames", "where"),
    [
        (PYTHON, [(1, 2, False), (3, 3, True), (6, 1, False)], "shop:charge"),
        (JAVA, [(1, 1, True), (2, 1, False)], "com.shop.Cards.pay"),
        (NODE, [(1, 1, True), (2, 1, False)], "shop.js:Cart.total"),
        (DOTNET, [(1, 1, False), (2, 1, True)], "Shop.Orders.Charge"),
        (GO, [(3, 2, True), (5, 2, False)], "main.(*Cart).Total"),
    ],
    ids=["python", "java", "node", "dotnet", "go"],
)
def test_frames_have_lines_and_an_owner(stack: str, frames: list[tuple[int, int, bool]], where: str) -> None:
    found = shown_frames(stack)
    assert [(frame.line, frame.lines, frame.own) for frame in found] == frames
    place = place_of(stack, found)
    assert place is not None
    assert place.name == where


@pytest.mark.parametrize("text", ["", "no trace\nat all", "\n" * 10_000, "at (" * 10_000, "\t/x.go:1"])
def test_what_is_no_trace_has_no_frames(text: str) -> None:
    assert shown_frames(text) == []
    assert place_of(text, []) is None
