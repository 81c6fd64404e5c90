// Audit: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Audit");
  return html`<${Head} title="Audit" /><${Empty} title="This page is not written yet"><//>`;
}
