// A shop's jobs on BullMQ. Nothing in it knows of Redrive.
//
//   npm install bullmq ioredis
//   node worker.mjs                    in one terminal
//   node add.mjs                       in another: one order of three cannot be packed
//
//   export REDRIVE_STORE=sqlite:///redrive.db REDRIVE_TRANSPORTS_BULLMQ=bullmq+redis://localhost:6379/0
//   redrive bullmq watch orders        in a third
//   redrive letters
//   touch boxes                        there are boxes again
//   redrive replay --all
import { existsSync } from "node:fs";
import { Worker } from "bullmq";

const address = new URL(process.env.REDIS_URL ?? "redis://localhost:6379");
const connection = { host: address.hostname, port: Number(address.port || 6379), maxRetriesPerRequest: null };

async function pack(job) {
  if (job.data.order % 3 === 0 && !existsSync("boxes")) {
    throw new RangeError(`no box is large enough for order ${job.data.order}`);
  }
  console.log(`packed order ${job.data.order}`);
}

const worker = new Worker(process.env.QUEUE ?? "orders", pack, { connection });
await worker.waitUntilReady();
console.log("ready");
