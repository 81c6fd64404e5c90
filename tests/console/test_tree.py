"""What a message says is shown as it is: exact, whole, and with nothing hidden in it. tree.js, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

from redrive import console

pytestmark = pytest.mark.servers

ASSETS = f"/assets/{console.tree_hash()}"
LONG = ",".join(f'{{"id": {number}, "name": "somebody"}}' for number in range(150_000))
SHOWN = """async ([text, assets]) => {
  const { JsonTree, Text } = await import(`${assets}/tree.js`);
  const { html, render } = await import(`${assets}/lib.js`);
  const into = document.body.appendChild(document.createElement("div"));
  const made = html`<div id="json"><${JsonTree} text=${text} /></div><p id="text"><${Text} value=${text} /></p>`;
  render(made, into);
  return { json: into.querySelector("#json").innerText, text: into.querySelector("#text").textContent,
    elements: into.querySelectorAll("img, script, b").length, nodes: into.querySelectorAll("*").length };
}"""


async def shown(page: Page, text: str) -> dict[str, Any]:
    found: dict[str, Any] = await page.evaluate(SHOWN, [text, ASSETS])
    return found


async def test_json_is_shown_as_it_was_written(page: Page) -> None:
    exact = '{"b": 1.0, "a": 12345678901234567890123, "a": [{}, "x\\"]", -0, null]}'
    found = (await shown(page, exact))["json"]
    for part in ('"b": 1.0', '"a": 12345678901234567890123', '"a": [', '"x\\"]"', "-0", "{}", "null"):
        assert part in found


async def test_marks_that_turn_or_hide_text_are_written_out(page: Page) -> None:
    found = await shown(page, '{"to": "\u202etxt.exe", "bell": "\x07", "family": "👩‍👧"}')
    assert "\\u202etxt.exe" in found["text"]
    assert "\\u0007" in found["text"]
    assert "👩‍👧" in found["text"]
    assert "\u202e" not in found["text"]


async def test_what_is_no_json_is_text(page: Page) -> None:
    found = await shown(page, "<b>no</b> <img src=x onerror=alert(1)> {")
    assert found["json"] == "<b>no</b> <img src=x onerror=alert(1)> {"
    assert found["elements"] == 0


@pytest.mark.parametrize("text", ["[" * 20_000 + "]" * 20_000, f"[{LONG}]"], ids=["deep", "long"])
async def test_what_is_deep_or_long_is_made_only_as_far_as_it_is_open(page: Page, text: str) -> None:
    found = await shown(page, text)
    assert found["nodes"] < 5_000
