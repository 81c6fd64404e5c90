// Replay: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Replay");
  return html`<${Head} title="Replay" /><${Empty} title="This page is not written yet"><//>`;
}
