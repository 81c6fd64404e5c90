// Overview: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Overview");
  return html`<${Head} title="Overview" /><${Empty} title="This page is not written yet"><//>`;
}
