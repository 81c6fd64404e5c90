// Group: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Group");
  return html`<${Head} title="Group" /><${Empty} title="This page is not written yet"><//>`;
}
