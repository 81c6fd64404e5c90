"""Reads what Go prints: a panic with its goroutine, `debug.Stack()`, and errors that print their frames."""

from __future__ import annotations

from redrive.forensics.stacks.frames import Runtime, go_frame, runtime_of
from redrive.forensics.stacks.headers import Builder
from redrive.forensics.stacks.model import Frame, Raised, Stack

_PANIC = "panic: "


def read_go(lines: list[str]) -> Stack | None:
    """The panic or error, with the frames of the goroutine that had it. Other goroutines only watched."""
    frames: list[Frame] = []
    said: list[str] = []
    goroutines, before = 0, ""
    for line in lines:
        if line.startswith("goroutine ") and line.rstrip().endswith(":"):
            goroutines += 1
        elif goroutines > 1:
            break
        elif runtime_of(line) is Runtime.GO:
            frames.append(go_frame(before, line.strip()))
        elif not goroutines and not frames:
            said.append(line)
        before = line
    if frames and not goroutines:
        said = said[:-1]  # the last of them was the function of the first frame
    return Stack((_raised(said, _thrown(frames)),))


def _raised(said: list[str], frames: list[Frame]) -> Raised:
    panicked = any(line.startswith(_PANIC) for line in said)
    raised = Builder("panic" if panicked else "error", "")
    for line in said:
        raised.say(line.strip().removeprefix(_PANIC))
    return Raised(raised.type, raised.message, tuple(frames))


def _thrown(frames: list[Frame]) -> list[Frame]:
    """The frames below the last `panic`: those above it are of who recovered, or asked for the stack."""
    panics = [number for number, frame in enumerate(frames) if frame.name in ("panic", "runtime.gopanic")]
    below = frames[panics[-1] + 1 :] if panics else frames
    started = [number for number, frame in enumerate(below) if frame.name == "runtime.sigpanic"]
    return below[started[-1] + 1 :] if started else below
