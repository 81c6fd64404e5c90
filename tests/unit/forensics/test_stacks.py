"""Traces as the runtimes print them: those of Java, Node and Go were printed by them, the others follow their form."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.forensics.stacks import Stack, cut_stack, read_stack

TRACES = Path(__file__).parent / "traces"


def trace(name: str) -> str:
    return (TRACES / f"{name}.txt").read_text()


def stack(name: str) -> Stack:
    found = read_stack(trace(name))
    assert found is not None
    return found


CHAINS: dict[str, list[str]] = {
    "java-connect": ["Shop$OrderFailed", "java.net.ConnectException"],
    "java-bare": ["java.lang.NullPointerException"],
    "java-suppressed": ["java.lang.RuntimeException", "java.io.IOException"],
    "java-circular": ["java.lang.RuntimeException", "java.lang.Exception", "java.lang.Exception"],
    "java-thread": ["Shop$OrderFailed", "java.net.ConnectException"],
    "java-out-of-memory": ["java.lang.OutOfMemoryError"],
    "java-spring": [
        "org.springframework.kafka.listener.ListenerExecutionFailedException",
        "com.example.shop.OrderFailed",
        "java.net.SocketTimeoutException",
    ],
    "java-kotlin": ["kotlinx.coroutines.JobCancellationException", "io.ktor.client.plugins.ServerResponseException"],
    "java-scala": ["java.util.concurrent.ExecutionException", "scala.MatchError"],
    "node-cause": ["OrderFailed", "SyntaxError"],
    "node-fetch": ["TypeError", "Error"],
    "node-uncaught": ["Error", "Error"],
    "node-any": ["AggregateError"],
    "dotnet-socket": [
        "System.InvalidOperationException",
        "System.Net.Http.HttpRequestException",
        "System.Net.Sockets.SocketException",
    ],
    "dotnet-old": ["System.Data.DataException", "System.UnauthorizedAccessException"],
    "dotnet-aggregate": ["System.AggregateException", "System.TimeoutException"],
    "python-cause": ["shop.bank.OrderFailed", "ConnectionRefusedError"],
    "python-handling": ["TimeoutError"],
    "go-again": ["panic"],
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_causes_come_outermost_first(name: str) -> None:
    assert [raised.type for raised in stack(name).chain] == CHAINS[name]


SITES: dict[str, tuple[str, ...]] = {
    "java-connect": ("Shop.show", "Shop.lambda$main", "Shop.charge"),
    "java-suppressed": ("Shop.show", "Shop.lambda$main", "Shop.sup"),
    "java-spring": ("com.example.shop.OrderListener.on", "com.example.shop.Bank.charge"),
    "java-kotlin": ("shop.Bank$charge.invokeSuspend",),
    "java-scala": ("shop.Bank$.$anonfun$charge",),
    "java-connect-worker": (),
    "node-cause": ("shop.js:<anonymous>", "shop.js:charge"),
    "node-type": ("shop.js:<anonymous>", "shop.js:Cart.total"),
    "node-async": ("shop.js:<anonymous>", "shop.js:Cart.later"),
    "node-refused": (),
    "node-multiline": (),
    "go-nil": ("main.rec", "main.main.func", "main.(*Cart).Total"),
    "go-again": ("main.main", "main.main.func", "main.(*Cart).Total"),
    "go-errors": ("example.com/shop.handle", "example.com/shop/bank.(*Client).Charge"),
    "dotnet-socket": ("Shop.Bank.Charge",),
    "dotnet-old": ("Shop.Store.Save",),
    "python-cause": ("worker:handle", "bank:charge"),
}


@pytest.mark.parametrize("name", SITES)
def test_the_throw_site_is_in_the_users_own_code(name: str) -> None:
    assert stack(name).site() == SITES[name]


def test_a_cause_has_the_frames_that_it_shares_with_what_it_caused() -> None:
    outer, cause = stack("java-connect").chain
    assert len(cause.frames) == 13
    assert cause.frames[-4:] == outer.frames


def test_a_message_may_have_lines_that_look_like_frames() -> None:
    assert stack("java-multiline").chain[0].message == "multi\nline message: at the disco\nat home"
    assert stack("node-multiline").chain[0].message == "multi\nline\nat home"


def test_the_code_of_node_is_part_of_what_it_says() -> None:
    assert stack("node-lookup").root.message.splitlines() == ["getaddrinfo ENOTFOUND no.such.host.invalid", "ENOTFOUND"]


def test_the_members_of_a_group() -> None:
    members = [[raised.message for raised in member.chain] for member in stack("node-aggregate").members]
    assert members == [["one", "root"], ["two"]]
    assert [member.root.type for member in stack("node-any").members] == ["Error", "TypeError"]
    assert [member.root.type for member in stack("dotnet-aggregate").members] == ["System.FormatException"]


def test_a_line_of_a_log_above_a_trace_is_not_its_type() -> None:
    found = read_stack(f"2026-01-02 10:00:00 ERROR [main] it failed\n{trace('java-bare')}")
    assert found is not None
    assert found.root.type == "java.lang.NullPointerException"


@pytest.mark.parametrize("text", ["", "all is well", "two\nlines", "at home\n at the disco", "\n\n\n", "\0\n\ud800"])
def test_what_is_no_trace_is_none(text: str) -> None:
    assert read_stack(text) is None


NUMBERED = [
    ("at shop.Bank$1.run(Bank.java:3)", "at shop.Bank$2.run(Bank.java:9)"),
    ("at shop.Bank.lambda$charge$0(Bank.java:3)", "at shop.Bank.lambda$charge$7(Bank.java:4)"),
    (
        "at shop.Bank$$Lambda$14/0x0000000800066840.run(Unknown Source)",
        "at shop.Bank$$Lambda$99/0x00000008000abcde.run(Unknown Source)",
    ),
    ("at java.base/java.net.Socket.connect(Socket.java:633)", "at java.base@21/java.net.Socket.connect(Socket.java:1)"),
    ("at Shop.Bank.<Charge>d__5.MoveNext() in /a.cs:line 3", "at Shop.Bank.<Charge>d__9.MoveNext() in /b.cs:line 7"),
    ("at charge (/app/releases/7/bank.js:3:9)", "at charge (C:\\releases\\8\\bank.js:4:1)"),
]


@pytest.mark.parametrize(("before", "after"), NUMBERED)
def test_a_build_does_not_change_the_name_of_a_frame(before: str, after: str) -> None:
    stacks = [read_stack(f"E: x\n\t{line}") for line in (before, after)]
    names = [found.root.frames[0].name for found in stacks if found is not None]
    assert len(names) == 2
    assert names[0] == names[1]


def deep(frames: int, cause: str, frames_of_cause: int) -> str:
    line = "\tat com.example.shop.Orders.handle(Orders.java:7)\n"
    return (
        f"java.lang.RuntimeException: outer\n{line * frames}Caused by: {cause}\n{line * frames_of_cause}\t... 3 more\n"
    )


@pytest.mark.parametrize(("frames", "of_cause"), [(1000, 3), (3, 1000), (1000, 1000), (30_000, 30_000)])
def test_a_trace_that_is_cut_keeps_its_root_cause(frames: int, of_cause: int) -> None:
    text = cut_stack(deep(frames, "java.net.SocketTimeoutException: Read timed out", of_cause), 32_000)
    assert len(text) <= 32_000
    assert text.startswith("java.lang.RuntimeException: outer\n")
    assert "Caused by: java.net.SocketTimeoutException: Read timed out\n\tat " in text
    assert "characters left out" in text
    found = read_stack(text)
    assert found is not None
    assert found.root.type == "java.net.SocketTimeoutException"


def test_a_traceback_of_python_that_is_cut_keeps_its_root_cause() -> None:
    frame = '  File "/app/shop.py", line 3, in charge\n    charge()\n'
    text = trace("python-cause").replace('  File "/app/worker', f'{frame * 3000}  File "/app/worker')
    assert "ConnectionRefusedError: [Errno 111]" in cut_stack(f"{'log line' * 8000}\n{text}", 32_000)


def test_a_short_trace_is_not_cut() -> None:
    assert cut_stack(trace("java-spring"), 32_000) == trace("java-spring")
