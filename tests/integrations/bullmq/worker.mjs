// A worker of BullMQ. What a job does stands in its data: `fails` until the file `mended` is there.
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "bullmq";

const { queue, prefix, concurrency } = JSON.parse(process.argv[2]);
const address = new URL(process.env.REDIS_URL);
const connection = { host: address.hostname, port: Number(address.port), maxRetriesPerRequest: null };

async function run(job) {
  if (job.data.takes) await sleep(job.data.takes);
  if (job.data.fails && !existsSync("mended")) throw new TypeError(`no card for ${job.data.n}`);
  console.log(`did ${job.data.n}`);
  return job.data.n;
}

const worker = new Worker(queue, run, {
  connection, prefix, concurrency: concurrency ?? 4, lockDuration: 1000, stalledInterval: 500, maxStalledCount: 3,
});
worker.on("error", () => {});
await worker.waitUntilReady();
console.log("ready");
