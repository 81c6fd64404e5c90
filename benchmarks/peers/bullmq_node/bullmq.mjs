// BullMQ on Node: addBulk of 500, concurrency 50, finished jobs removed, jobs that failed for good kept.
// The parts it plays and what it says are those of benchmarks/redis_child.py.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

const ATTEMPTS = 3;
const BULK = 500;
const CONCURRENCY = 50;

const task = JSON.parse(process.argv[2]);
const JOB = { removeOnComplete: true, ...(task.failing && { attempts: ATTEMPTS }) };
const address = new URL(task.url);
const connection = { host: address.hostname, port: Number(address.port), maxRetriesPerRequest: null };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const say = (line) => process.stdout.write(`${line}\n`);
const read = () => readFileSync(task.orders, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));

async function go() {
  say("ready");
  await lines.next();
}

async function addAll(queue, orders) {
  for (let at = 0; at < orders.length; at += BULK) {
    await queue.addBulk(orders.slice(at, at + BULK).map((data) => ({ name: "job", data, opts: JOB })));
  }
}

function started(name, handle) {
  return new Worker(name, async (job) => handle(job.data), { connection, concurrency: CONCURRENCY });
}

function calls() {
  if (!task.failing) return task.count;
  const once = Math.ceil((task.count - 1) / 10);
  const always = Math.ceil(task.count / 100);
  return task.count + once + (ATTEMPTS - 1) * always;
}

function counting(left, last, failing) {
  const failed = new Set();
  return (order) => {
    left -= 1;
    if (left === 0) last();
    if (!failing) return;
    const number = Number(order.order.slice(4));
    if ((number % 10 === 1 && !failed.has(number)) || number % 100 === 0) {
      failed.add(number);
      throw new Error(`job ${number}`);
    }
  };
}

const roles = {
  async produce() {
    const orders = read();
    await addAll(new Queue("warm", { connection }), orders.slice(0, task.warm));
    const queue = new Queue("jobs", { connection });
    await queue.waitUntilReady();
    await go();
    await addAll(queue, orders.slice(0, task.count));
    say("done");
    process.exit();
  },

  async work() {
    const warm = await new Promise((resolve) => {
      const worker = started("warm", counting(task.warm, () => resolve(worker), false));
    });
    await sleep(300);
    await warm.close();
    await go();
    started("jobs", counting(calls(), () => say("handled"), task.failing));
  },

  async tell() {
    const orders = read();
    const queue = new Queue("jobs", { connection });
    await new Queue("warm", { connection }).add("job", orders[0], JOB);
    await queue.waitUntilReady();
    await go();
    for (const order of orders.slice(0, task.count)) {
      await sleep(5 + 10 * Math.random());
      await queue.add("job", { ...order, at: Number(process.hrtime.bigint()) }, JOB);
    }
    say("done");
    process.exit();
  },

  async hear() {
    const took = [];
    const worker = started("jobs", (order) => {
      took.push(Number(process.hrtime.bigint()) - order.at);
      if (took.length === task.count) say(JSON.stringify(took));
    });
    await worker.waitUntilReady();
    say("ready");
  },
};

await roles[task.role]();
