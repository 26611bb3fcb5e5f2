// A small real model behind chat completions and embeddings, for nightly tests: node-llama-cpp with the weights of SmolLM2 135M.
//
//   node model-server.mjs FOLDER WEIGHTS PORT
//
// FOLDER has node-llama-cpp in its node_modules. It answers one question after the other, writes `ready` when it listens, and speaks as
// much of the API as the tests use: messages of texts, max_tokens, temperature, response_format with a JSON Schema. Where there are tools, the
// model chooses one of them before it has seen a result, and answers with a text after that.
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

// A schema as node-llama-cpp reads it, which knows `oneOf` and not `anyOf`; a schema that says nothing is any plain value.
function known(schema) {
  if (Array.isArray(schema)) return schema.map(known);
  if (schema === null || typeof schema !== "object") return schema;
  if (Object.keys(schema).length === 0) return {type: ["string", "number", "boolean", "null"]};
  const {anyOf, ...rest} = schema;
  const entries = Object.entries(rest).map(([name, value]) => [name, name === "properties"
    ? Object.fromEntries(Object.entries(value).map(([member, inner]) => [member, known(inner)]))
    : known(value)]);
  return {...Object.fromEntries(entries), ...(anyOf && {oneOf: known(anyOf)})};
}

async function chat({messages, max_tokens, temperature, response_format, tools, model: name}) {
  const system = messages.filter(({role}) => role === "system").map(({content}) => content).join("\n");
  const session = new LlamaChatSession({contextSequence: sequence, systemPrompt: system || undefined, autoDisposeSequence: false});
  const history = session.getChatHistory();
  for (const {role, content} of messages.slice(0, -1)) {
    if (role === "user" || role === "tool") history.push({type: "user", text: content});
    if (role === "assistant") history.push({type: "model", response: [content ?? ""]});
  }
  session.setChatHistory(history);
  const chooses = tools?.length && messages.at(-1).role === "user";
  const choice = chooses && {
    type: "object",
    properties: {
      tool: {enum: tools.map(({function: {name}}) => name)},
      arguments: tools[0].function.parameters,
    },
  };
  const schema = choice || response_format?.json_schema?.schema;
  const grammar = schema && await llama.createGrammarForJsonSchema(known(schema));
  const most = max_tokens ?? 128;
  const {responseText, stopReason} =
    await session.promptWithMeta(messages.at(-1).content, {maxTokens: most, temperature: temperature ?? 0, grammar});
  session.dispose({disposeSequence: false});
  const tokens = (text) => model.tokenize(text ?? "").length;
  const message = {role: "assistant", content: responseText};
  if (chooses && stopReason !== "maxTokens") {
    const {tool, arguments: given} = grammar.parse(responseText);
    message.content = null;
    message.tool_calls = [{id: `call-${messages.length}`, type: "function", function: {name: tool, arguments: JSON.stringify(given)}}];
  }
  return {
    object: "chat.completion",
    model: name,
    choices: [{
      index: 0,
      message,
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
