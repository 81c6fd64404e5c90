// Adds what its argument says: jobs, flows, a schedule; or pauses and resumes.
import { FlowProducer, Queue } from "bullmq";

const { queue: name, prefix, jobs, flow, schedule, act } = JSON.parse(process.argv[2]);
const address = new URL(process.env.REDIS_URL);
const connection = { host: address.hostname, port: Number(address.port) };
const queue = new Queue(name, { connection, prefix });

if (jobs) await queue.addBulk(jobs);
if (flow) {
  const producer = new FlowProducer({ connection, prefix });
  await producer.add(flow);
  await producer.close();
}
if (schedule) await queue.upsertJobScheduler("nightly", { every: 3_600_000 }, schedule);
if (act) await queue[act]();
console.log(JSON.stringify(await queue.getJobCounts()));
await queue.close();
