// A small real model behind chat completions and embeddings, for nightly tests: node-llama-cpp with the weights of SmolLM2 135M.
//
//   node model-server.mjs FOLDER WEIGHTS PORT
//
// FOLDER has node-llama-cpp in its node_modules. It answers one question after the other, writes `ready` when it listens, and speaks as
// much of the API as the tests use: messages of texts, max_tokens, temperature, response_format with a JSON Schema.
import {createServer} from "node:http";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [folder, weights, port] = process.argv.slice(2);
const resolve = createRequire(`${folder}/`).resolve;
const {getLlama, LlamaChatSession} = await import(pathToFileURL(resolve("node-llama-cpp")).href);
const llama = await getLlama({gpu: false, build: "never", maxThreads: 1, logLevel: "error"});
const model = await llama.loadModel({modelPath: weights});
const context = await model.createContext({contextSize: 2048});
const vectors = await model.createEmbeddingContext();
const sequence = context.getSequence();

async function chat({messages, max_tokens, temperature, response_format, model: name}) {
  const system = messages.filter(({role}) => role === "system").map(({content}) => content).join("\n");
  const session = new LlamaChatSession({contextSequence: sequence, systemPrompt: system || undefined, autoDisposeSequence: false});
  const history = session.getChatHistory();
  for (const {role, content} of messages.slice(0, -1)) {
    if (role === "user") history.push({type: "user", text: content});
    if (role === "assistant") history.push({type: "model", response: [content]});
  }
  session.setChatHistory(history);
  const schema = response_format?.json_schema?.schema;
  const grammar = schema && await llama.createGrammarForJsonSchema(schema);
  const most = max_tokens ?? 128;
  const {responseText, stopReason} =
    await session.promptWithMeta(messages.at(-1).content, {maxTokens: most, temperature: temperature ?? 0, grammar});
  session.dispose({disposeSequence: false});
  const tokens = (text) => model.tokenize(text).length;
  return {
    object: "chat.completion",
    model: name,
    choices: [{
      index: 0,
      message: {role: "assistant", content: responseText},
      finish_reason: stopReason === "maxTokens" ? "length" : "stop",
    }],
    usage: {
      prompt_tokens: messages.reduce((sum, {content}) => sum + tokens(content), 0),
      completion_tokens: tokens(responseText),
    },
  };
}

async function embed({input, model: name}) {
  const data = [];
  for (const [index, text] of [input].flat().entries()) {
    const {vector} = await vectors.getEmbeddingFor(text);
    data.push({object: "embedding", index, embedding: [...vector]});
  }
  const tokens = [input].flat().reduce((sum, text) => sum + model.tokenize(text).length, 0);
  return {object: "list", model: name, data, usage: {prompt_tokens: tokens}};
}

let turn = Promise.resolve();
const routes = {"/v1/chat/completions": chat, "/v1/embeddings": embed};
createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    turn = turn.then(async () => {
      const route = request.method === "POST" && routes[request.url];
      const [status, body] = route
        ? await route(JSON.parse(Buffer.concat(chunks))).then((body) => [200, body], (error) => [500, {error: {message: String(error)}}])
        : [404, {error: {message: "there is nothing here"}}];
      response.writeHead(status, {"content-type": "application/json"}).end(JSON.stringify(body));
    });
  });
}).listen(Number(port), "127.0.0.1", () => console.log("ready"));
