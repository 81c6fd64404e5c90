"""What MODULE:NAME names in the user's code, for commands that take a function or a table of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.cli.apps import find_object
from redrive.cli.exits import Stopped

HINT = "make it a dictionary of queues and functions"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_handlers.py").write_text("handlers = {'q.audit': print}\nothers = 7\n")
    (tmp_path / "broken_handlers.py").write_text("import no_such_library_at_all\n")


def test_a_name_or_the_usual_one() -> None:
    assert find_object("some_handlers", "handlers", HINT) == {"q.audit": print}
    assert find_object("some_handlers:others", "handlers", HINT) == 7


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("some_handlers:nothing", "'some_handlers' has no 'nothing': make it a dictionary"),
        ("some_handler", "no module 'some_handler' in .*did you mean 'some_handlers'"),
        ("broken_handlers", "module 'broken_handlers' cannot be imported: No module named 'no_such_library_at_all'"),
    ],
)
def test_what_is_wrong_with_a_name(target: str, says: str) -> None:
    with pytest.raises(Stopped, match=says):
        find_object(target, "handlers", HINT)


def test_a_refused_handler_and_a_wrong_setting_in_the_code_name_the_line_of_the_user(tmp_path: Path) -> None:
    lines = "from redrive import Redrive\napp = Redrive(transport='memory://')\n\n@app.handler('orders')\n"
    (tmp_path / "refused_shop.py").write_text(f"{lines}def charge():\n    pass\n")
    with pytest.raises(Stopped, match=r"takes 0 parameters.*\(refused_shop\.py, line 4\)$"):
        find_object("refused_shop:app", "app", HINT)
    (tmp_path / "wrong_shop.py").write_text("from redrive import Policy\n\npolicy = Policy(attempts=0)\n")
    with pytest.raises(Stopped, match=r"attempts.*wrong_shop\.py:3\)$"):
        find_object("wrong_shop:app", "app", HINT)


def test_a_module_that_is_not_python_names_its_own_line_and_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "broken_shop.py").write_text("def charge()\n    pass\n")
    with pytest.raises(Stopped, match=r"expected ':' \(broken_shop\.py, line 1\)$"):
        find_object("broken_shop:app", "app", HINT)
