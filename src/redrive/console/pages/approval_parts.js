// An act that waits for a second person answers with its approval, and nothing of it is done.

import { part } from "../api.js";
import { href } from "../router.js";
import { toast } from "../ui.js";

/** Whether the answer says that a second person has to look first; that is said then. */
export function waits(/** @type {any} */ answer) {
  if (!answer?.approval) return false;
  toast(answer.detail || "It waits for a second person", "info", href(`/approvals/${part(answer.approval.id)}`));
  return true;
}
