"""One line of a trace: which runtime printed it, which function it names, and whose code that is."""

from __future__ import annotations

import re
from enum import Enum

from redrive.forensics.stacks.model import NAMELESS, Frame


class Runtime(Enum):
    """Who printed a trace."""

    JAVA = "java"
    NODE = "node"
    DOTNET = "dotnet"
    GO = "go"
    PYTHON = "python"


LONGEST_LINE = 2_000
_JAVA = re.compile(
    r"[\w.$<>/@+-]+\((?:[\w$ -]+\.(?:java|kt|kts|scala|groovy|clj)(?::\d+)?|Native Method|Unknown Source)\)"
)
_JAVA_OTHER = re.compile(r"[\w.$<>/@+-]+\.[\w$<>-]+\((?:<generated>|[\w$-]+(?::\d+)?|)\)")
_DOTNET = re.compile(r"[^\s()]+(?: [^\s()]+)?\([^()]*\)(?: in .*:line \d+)?")
_GO_PLACE = re.compile(r"\s+\S.*\.go:\d+(?: \+0x[0-9a-f]+)?")
_PYTHON = re.compile(r'File "(.*)", line \d+(?:, in (.*))?')

_JAVA_LIBRARIES = """
    java. javax. jdk. sun. com.sun. jakarta. kotlin. kotlinx. scala. groovy. clojure. org.springframework.
    org.apache. org.hibernate. org.eclipse. org.jboss. org.codehaus. org.slf4j. com.fasterxml. com.google.
    com.zaxxer. com.mongodb. com.rabbitmq. com.mysql. com.amazonaws. org.postgresql. org.mariadb. org.h2.
    oracle. com.microsoft. com.ibm. software.amazon. akka. io.netty. io.grpc. io.vertx. io.quarkus.
    io.micronaut. io.micrometer. io.opentelemetry. io.confluent. io.ktor. io.lettuce.
    io.github.resilience4j. io.reactivex. redis.clients. reactor. feign. okhttp3. okio. retrofit2.
    org.elasticsearch. org.opensearch. ch.qos.logback. org.junit. brave. org.aspectj. net.bytebuddy.
    org.mockito. org.glassfish. org.jooq. org.quartz. org.bson.
"""
_JAVA_MADE_UP = ("$Proxy", "CGLIB$", "GeneratedMethodAccessor", "GeneratedConstructorAccessor", "$$Lambda")
_DOTNET_LIBRARIES = """
    System. Microsoft. Newtonsoft. MassTransit. NServiceBus. RabbitMQ. Confluent. Npgsql. Dapper. Grpc.
    Polly. MySql. MySqlConnector. StackExchange. MongoDB. Azure. Amazon. Castle. Autofac. MediatR.
    FluentValidation. AutoMapper. Serilog. Hangfire. Quartz. Rebus.
"""
_JAVA_PREFIXES, _DOTNET_PREFIXES = tuple(_JAVA_LIBRARIES.split()), tuple(_DOTNET_LIBRARIES.split())
_COUNTED = re.compile(r"\$\d++(?![A-Za-z_])")  # classes and lambdas without a name: the next build may count otherwise
_LOADER = re.compile(r"\A(?:[\w.@+-]*/){1,2}(?=[\w$])")
_NUMBERED = re.compile(r"(?<=func)\d+|(?<=gowrap)\d+|(?<=deferwrap)\d+|(?<=\|)[\d_]+\Z|(?<=__)[\d_]+")
_ASYNC = re.compile(r"<(\w+)>d__\d*\.MoveNext\Z")


def runtime_of(line: str) -> Runtime | None:
    """Whose frame this line is; None if it is no frame."""
    if len(line) > LONGEST_LINE:
        return None
    text = line.strip()
    if text.startswith("at "):
        return _runtime_at(text[3:].removeprefix("async "))
    if _PYTHON.match(text):
        return Runtime.PYTHON
    return Runtime.GO if _GO_PLACE.fullmatch(line) else None


def _runtime_at(place: str) -> Runtime | None:
    place = place.partition(" [")[0].partition(" ~[")[0] if place.endswith("]") else place  # logback names the jar
    if _JAVA.fullmatch(place):
        return Runtime.JAVA
    if _is_node(place):
        return Runtime.NODE
    if _JAVA_OTHER.fullmatch(place) and "/" in place:
        return Runtime.JAVA
    return Runtime.DOTNET if _DOTNET.fullmatch(place) else None


def _is_node(place: str) -> bool:
    place = place.removesuffix(" {").removesuffix(",")
    inner = place[:-1].rpartition("(")[2] if place.endswith(")") else place
    return _without_position(inner) != inner or inner in ("<anonymous>", "native") or inner.startswith("index ")


def java_frame(line: str) -> Frame:
    """`at java.base/java.net.Socket.connect(Socket.java:633)` is `java.net.Socket.connect`."""
    name = _LOADER.sub("", line.strip().removeprefix("at ").partition("(")[0])
    library = name.startswith(_JAVA_PREFIXES) or any(part in name for part in _JAVA_MADE_UP)
    before, made_up, after = name.partition("$$Lambda")
    if made_up:
        name = f"{before}.{after.rpartition('.')[2]}"
    return Frame(_COUNTED.sub("", name), own=not library)


def node_frame(line: str) -> Frame:
    """`at async Cart.total (/app/shop.js:4:41)` is `shop.js:Cart.total`."""
    text = line.strip().removeprefix("at ").removeprefix("async ").removesuffix("{").rstrip(" ,")
    function, bracket, place = text.partition(" (")
    if not bracket:
        function, place = "", text
    file = "<anonymous>" if place.startswith("eval at ") else _without_position(place.rstrip(")"))
    name = function.partition(" [as ")[0].removeprefix("new ").removeprefix("Object.")
    own = not (file.startswith(("node:", "internal/", "<anonymous>", "index ", "native")) or "node_modules" in file)
    return Frame(f"{_short(file)}:{name or NAMELESS}", own)


def _without_position(place: str) -> str:
    """`/app/shop.js:4:41` without its line and column."""
    head, colon, last = place.rpartition(":")
    if not colon or not last.isdigit():
        return place
    file, colon, line = head.rpartition(":")
    return file if colon and line.isdigit() else place


def _short(path: str) -> str:
    """The file's own name, with its folder where all files have that name: where it is installed may change."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(parts[-2:]) if parts[-1].startswith(("index.", "main.", "__init__.")) else parts[-1]


def dotnet_frame(line: str) -> Frame:
    """`at Shop.Orders.Charge(String name) in /src/Orders.cs:line 42` is `Shop.Orders.Charge`."""
    name = line.strip().removeprefix("at ").partition("(")[0].rpartition(" ")[2]  # Mono prints a space before it
    name = _ASYNC.sub(r"\1", name or line.strip())
    return Frame(_NUMBERED.sub("", name), own=not name.startswith(_DOTNET_PREFIXES))


def go_frame(function: str, place: str) -> Frame:
    """`main.(*Cart).Total(0xc000)` in `/src/main.go:4` is `main.(*Cart).Total`."""
    name = function.strip().removeprefix("created by ").partition(" in goroutine ")[0]
    if name.endswith(")"):
        name = _before_arguments(name)
    package = name.partition(".")[0]
    installed = any(part in place for part in ("/go/src/", "/pkg/mod/", "/vendor/", "/golang.org/", "_cgo"))
    library = installed or package in ("runtime", "panic", "testing", "sync", "net", "os", "reflect", "syscall")
    return Frame(_NUMBERED.sub("", name), own=not library)


def _before_arguments(name: str) -> str:
    """The arguments are what stands in the last brackets; those of a receiver come before."""
    start = name.rfind("(")
    return name[:start] if start > 0 else name


def python_frame(line: str) -> Frame:
    """`File "/app/shop.py", line 3, in charge` is `shop:charge`."""
    match = _PYTHON.match(line.strip()[:LONGEST_LINE])
    path, function = (match[1], match[2] or "") if match else ("?", "")
    library = (
        any(part in path for part in ("site-packages", "dist-packages", "/lib/python", "\\lib\\")) or path[:1] == "<"
    )
    return Frame(f"{_short(path).removesuffix('.py')}:{function}", own=not library)
