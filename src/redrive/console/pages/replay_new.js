// The wizard of a replay: what would be sent, what speaks against it, how carefully; then it is followed on its own page.

import { inWords, inquire, mayPass, post } from "../api.js";
import { Brief } from "../clamped.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { go, href, query, useTitle } from "../router.js";
import { live, may } from "../state.js";
import { Button, Chip, Empty, Facts, Field, Head, Panel, duration, letters, number } from "../ui.js";
import { Text } from "../tree.js";
import { waits } from "./approval_parts.js";
import { asked, queryOf, upToNow } from "./letter_filters.js";

const MANY = 100;

const NOTHING = { said: "", passes: false }; // why there is no plan, and whether there may be one later

export default function NewReplay() {
  useTitle("New replay");
  const address = query.value.toString();
  const wanted = useMemo(() => upToNow(queryOf(asked(query.value))), [address]);
  const every = Object.keys(wanted).every((name) => name === "before");
  const [rate, setRate] = useState("");
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [why, setWhy] = useState(NOTHING);
  const [tries, setTries] = useState(0);
  const back = live.value.position === "on";
  useEffect(() => {
    if (back && why.passes) setTries(tries + 1); // the server is there again
  }, [back]);
  useEffect(() => {
    let left = false;
    setWhy(NOTHING);
    const timer = setTimeout(async () => {
      try {
        const made = await inquire("replays/plan", { query: wanted, rate: Number(rate) || null });
        if (!left) setPlan(made);
      } catch (error) {
        if (!left) setWhy({ said: inWords(error), passes: mayPass(error) });
      }
    }, plan ? 300 : 0);
    return () => void ((left = true), clearTimeout(timer));
  }, [wanted, rate, tries]);
  return html`<${Head} title="New replay" back=${[href("/replays"), "Replays"]} about="Exactly what is selected now is frozen when it starts" />
    ${why.said && html`<p class="caution" role="alert">${why.said} ${why.passes && html`<button type="button" class="button" onClick=${() => setTries(tries + 1)}>Try again</button>`}</p>`}
    <ol class="steps" aria-label="Steps"><li aria-current="step">Plan</li><li>A few first</li><li>More, step by step</li><li>Done</li></ol>
    ${!plan ? !why.said && html`<${Panel} title="What would be sent" from=${{ data: null, error: null, loading: true, reload: () => {} }} />` : html`
      <div class="columns"><div><${Planned} plan=${plan} wanted=${wanted} every=${every} /></div>
      <div>${may("operator") ? html`<${Order} plan=${plan} wanted=${wanted} every=${every} rate=${rate} setRate=${setRate} />` : html`<${Panel} title="How"><p class="faint">Starting a replay takes an operator.</p><//>`}</div></div>`}`;
}

/** The selection in numbers, and what speaks against it. */
function Planned({ plan, wanted, every }) {
  const filters = Object.entries(wanted).filter(([name]) => name !== "before");
  return html`<${Panel} id="plan" title="What would be sent" about=${letters(plan.total)}>
      ${plan.total === 0 && html`<${Empty} title="Nothing of it can be sent">${plan.left_out ? `${letters(plan.left_out)} are resolved, archived, sent or on their way.` : every ? "There is no letter yet." : "No letter matches."}<//>`}
      ${plan.warnings.length > 0 && html`<ul class="warnings">${plan.warnings.map((text) => html`<li class="caution"><${Text} value=${text} /></li>`)}</ul>`}
      <${Facts} rows=${[
        ["Selected by", every ? html`<strong>every letter there is</strong>` : filters.map(([name, value]) => html`<${Chip}><${Text} value=${`${name}: ${Array.isArray(value) ? (value.length > 3 ? `${value.length} of them` : value.join(", ")) : value}`} /><//> `)],
        ...Object.entries(plan.targets).map(([target, count]) => [html`back to <${Text} value=${target} />`, letters(count)]),
        ...Object.entries(plan.not_configured).map(([name, count]) => ["Skipped", html`<span class="caution">${letters(count)}: this server has no transport ${name}</span>`]),
        ["Left out", plan.left_out > 0 && `${letters(plan.left_out)}: resolved, archived, sent or on their way`],
        ["Takes at least", plan.seconds !== null && plan.seconds > 0 && duration(plan.seconds)],
      ]} />
    <//>
    ${plan.groups.length > 0 && html`<${Panel} title="Of these groups" about=${number(plan.groups.length)}><ul class="stack">${plan.groups.map((group) => html`<li key=${group.id}>
      <strong>${letters(group.count)}</strong> <a class="title" href=${href(`/groups/${group.id}`)}><${Brief} value=${group.error_type} /></a> <span class="faint"><${Brief} value=${group.message} /></span></li>`)}</ul><//>`}`;
}

/** What is wrong with the steps, in words for the field; empty if nothing is. */
function wrongRamp(/** @type {string} */ text) {
  const steps = text.split(",").map((step) => (step.trim() ? Number(step) : NaN));
  const fits = steps.every((step, index) => step > (steps[index - 1] ?? 0) && step <= 100);
  return fits ? "" : "Percent of all, up to 100, each more than the one before, with commas between: such as 5,20,100";
}

function Order({ plan, wanted, every, rate, setRate }) {
  const [reason, setReason] = useState("");
  const [guarded, setGuarded] = useState(/** @type {boolean | null} */ (null));
  const [canary, setCanary] = useState("5");
  const [ramp, setRamp] = useState("5,20,100");
  const [guard, setGuard] = useState("10");
  const [order, setOrder] = useState(true);
  const [sure, setSure] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const careful = guarded ?? plan.total > MANY;
  const start = async () => {
    if (!form.current?.reportValidity()) return; // the browser says at the field what is no number: none would be no limit
    const steps = careful ? { canary: Number(canary), ramp: ramp.split(",").map(Number), guard: Number(guard) } : {};
    const replay = await post("replays", { query: wanted, all: every, rate: Number(rate) || null, reason, order, guarded: careful, ...steps });
    if (waits(replay)) go("/approvals/" + replay.approval.id);
    else go(`/replays/${replay.id}`);
  };
  const typed = (set) => (event) => set(event.target.value);
  return html`<${Panel} id="order" title="How"><form ref=${form} onSubmit=${(event) => event.preventDefault()}>
    <${Field} label="Letters a second" about="empty: as fast as it goes"><input type="number" id="rate" min="0.1" step="any" inputmode="decimal" value=${rate} onInput=${typed(setRate)} /><//>
    <label class="row"><input type="checkbox" id="guarded" checked=${careful} onChange=${(event) => setGuarded(event.target.checked)} /> A few first, then more, and pause by itself when too many die again</label>
    ${careful && html`<div class="fields">
      <${Field} label="A few first"><input type="number" required min="1" max="10000" value=${canary} onInput=${typed(setCanary)} /><//>
      <${Field} label="Then percent of all"><input type="text" required value=${ramp} onInput=${typed(setRamp)} ref=${(field) => field?.setCustomValidity(wrongRamp(ramp))} /><//>
      <${Field} label="Pause over percent"><input type="number" required min="0" max="100" step="any" value=${guard} onInput=${typed(setGuard)} /><//></div>`}
    <label class="row"><input type="checkbox" checked=${order} onChange=${(event) => setOrder(event.target.checked)} /> Letters of one key one after the other</label>
    <${Field} label="Reason" about="for the audit trail"><input type="text" id="reason" maxlength="1000" placeholder="such as: the bug is mended" value=${reason} onInput=${typed(setReason)} /><//>
    ${every && html`<label class="row caution"><input type="checkbox" checked=${sure} onChange=${(event) => setSure(event.target.checked)} /> Every letter there is, of every group and source</label>`}
    <div class="dialog-acts"><a class="button" href=${href("/replays")}>Cancel</a>
      <${Button} act=${start} kind="primary" id="confirm" disabled=${plan.total === 0 || (every && !sure)}>Send ${letters(plan.total)} back<//></div></form><//>`;
}
