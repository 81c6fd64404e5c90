// Letter: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Letter");
  return html`<${Head} title="Letter" /><${Empty} title="This page is not written yet"><//>`;
}
