// Adds three orders to the queue of worker.mjs.
import { Queue } from "bullmq";

const address = new URL(process.env.REDIS_URL ?? "redis://localhost:6379");
const connection = { host: address.hostname, port: Number(address.port || 6379) };
const queue = new Queue(process.env.QUEUE ?? "orders", { connection });

for (const order of [1, 2, 3]) {
  await queue.add("pack", { order }, { attempts: 2 });
  console.log(`added order ${order}`);
}
await queue.close();
