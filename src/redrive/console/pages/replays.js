// Replays: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Replays");
  return html`<${Head} title="Replays" /><${Empty} title="This page is not written yet"><//>`;
}
