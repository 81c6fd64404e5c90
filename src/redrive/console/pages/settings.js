// Settings: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Settings");
  return html`<${Head} title="Settings" /><${Empty} title="This page is not written yet"><//>`;
}
