"""Stack traces that other runtimes printed, read as data: types, causes and frames.

model.py    what is read from a trace
frames.py   one line of a trace: which runtime printed it, which function it names, whose code that is
java.py     Java, Kotlin, Scala: Caused by, Suppressed, "... 23 more"
node.py     Node: [cause], [errors] of an AggregateError
dotnet.py   .NET: ---> and "End of inner exception stack trace"
golang.py   Go: a panic with its goroutine, and errors that carry their frames
python.py   Python's tracebacks, printed by somebody else
shown.py    which lines are frames, and whose, for who folds those of libraries
cut.py      a trace within a limit, which keeps its root cause

Nothing here raises, and every reader takes time linear in the text: a trace is what a stranger wrote into a header.
"""

from redrive.forensics.stacks.cut import cut_stack
from redrive.forensics.stacks.model import Frame, Raised, Stack
from redrive.forensics.stacks.reading import read_stack

__all__ = ["Frame", "Raised", "Stack", "cut_stack", "read_stack"]
