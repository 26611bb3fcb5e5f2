// A worker for the benchmark of workers (make bench-workers), which starts the server and, for `steps`, the runs.
//   node worker.mjs steps       how many steps a second this worker executes, of runs that are there already
//   node worker.mjs latency     how long one run of ten steps takes, and a sleep of 50 ms
// Prints one line of JSON.
import { Semel, workflow } from '../packages/sdk/dist/src/index.js';

const seconds = Number(process.env.SEMEL_BENCH_SECONDS ?? 6);
const [RUNS, STEPS_OF_TEN] = [50, 10];
let steps = 0, first;

const ten = workflow('ten', async (ctx, given) => {
  let sum = given;
  for (let n = 1; n <= STEPS_OF_TEN; n += 1) {
    sum += await ctx.step(`step-${n}`, () => {
      first ??= performance.now();
      steps += 1;
      return n;
    });
  }
  return sum;
});
const nap = workflow('nap', async ctx => ctx.sleep('nap', '50ms'));

const median = times => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];

async function took(semel, flow) {
  const begun = performance.now();
  await (await semel.start(flow, 0)).result({ timeout: '30s' });
  return performance.now() - begun;
}

const semel = new Semel();
const worker = await semel.worker({ workflows: [ten, nap] }).start();
if (process.argv[2] === 'steps') {
  while (first === undefined) await new Promise(resolve => setTimeout(resolve, 1));
  const before = steps, since = performance.now();
  await new Promise(resolve => setTimeout(resolve, seconds * 1000));
  console.log(JSON.stringify({ stepsPerSecond: (steps - before) * 1000 / (performance.now() - since) }));
} else {
  // The first runs warm everything up.
  for (let n = 0; n < RUNS; n += 1) await took(semel, ten);
  const runs = [], naps = [];
  for (let n = 0; n < RUNS; n += 1) runs.push(await took(semel, ten));
  for (let n = 0; n < RUNS; n += 1) naps.push(await took(semel, nap));
  console.log(JSON.stringify({ runMs: median(runs), napMs: median(naps) }));
}
await worker.kill();
semel.close();
