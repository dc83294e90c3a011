// The request on the page, as code for other clients.
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const python = (text) => JSON.stringify(text); // a JSON string is one of Python's, too
const DATATYPES = {
  DT_BOOL: "BOOL", DT_UINT8: "UINT8", DT_UINT16: "UINT16", DT_UINT32: "UINT32", DT_UINT64: "UINT64", DT_INT8: "INT8", DT_INT16: "INT16", DT_INT32: "INT32",
  DT_INT64: "INT64", DT_HALF: "FP16", DT_BFLOAT16: "BF16", DT_FLOAT: "FP32", DT_DOUBLE: "FP64", DT_STRING: "BYTES",
};
const NUMPY = { BOOL: "bool", FP16: "float16", BF16: "float32", FP32: "float32", FP64: "float64", BYTES: "object" };
const MOST_SHOWN = 4000;

const bodyFile = (request) => request.file ?? "body";
const isInline = (request) => request.file === null && request.text.length <= MOST_SHOWN;
const headerLines = (request) => Object.entries(request.headers);

function curl(request) {
  const data = isInline(request) ? shell(request.text) : shell(`@${bodyFile(request)}`);
  const lines = [`curl ${shell(request.url)}`, ...headerLines(request).map(([name, value]) => `  -H ${shell(`${name}: ${value}`)}`), `  --data-binary ${data}`];
  return lines.join(" \\\n");
}

const pythonBody = (request) => (isInline(request) ? `${python(request.text)}.encode()` : `open(${python(bodyFile(request))}, "rb").read()`);

function requests(request) {
  const headers = headerLines(request).map(([name, value]) => `    ${python(name)}: ${python(value)},`);
  return ["import requests", "", `body = ${pythonBody(request)}`, "headers = {", ...headers, "}", `response = requests.post(${python(request.url)}, data=body, headers=headers, timeout=60)`, "print(response.status_code, response.headers.get(\"Content-Type\"))", "print(response.content)"].join("\n");
}

function boto3(request) {
  const parts = [`    EndpointName="ENDPOINT",`, `    ContentType=${python(request.headers["Content-Type"] ?? "application/json")},`];
  if (request.headers.Accept) parts.push(`    Accept=${python(request.headers.Accept)},`);
  const attributes = request.headers["X-Amzn-SageMaker-Custom-Attributes"];
  if (attributes) parts.push(`    CustomAttributes=${python(attributes)},`);
  if (request.isOneOfMany) parts.push(`    TargetModel=${python(`${request.archive.replaceAll("--", "/")}.tar.gz`)},`);
  return ["# The same request to a SageMaker endpoint that runs this container.", "import boto3", "", `body = ${pythonBody(request)}`, "response = boto3.client(\"sagemaker-runtime\").invoke_endpoint(", ...parts, "    Body=body,", ")", "print(response[\"ContentType\"], response[\"Body\"].read())"].join("\n");
}

// The lines that make one input's array: of the form's values if they are known, else of ones of its shape.
function inputLines([name, spec], index, value) {
  const datatype = DATATYPES[spec.dtype] ?? "FP32";
  const dtype = NUMPY[datatype] ?? datatype.toLowerCase();
  const shape = (spec.shape ?? []).map((size) => (size < 0 ? 1 : size));
  const literal = value === undefined ? null : JSON.stringify(value).replaceAll("true", "True").replaceAll("false", "False");
  const array = literal && literal.length <= MOST_SHOWN ? `np.array(${literal}, dtype=np.${dtype === "object" ? "object_" : dtype})` : datatype === "BYTES" ? `np.full(${JSON.stringify(shape)}, b"text", dtype=np.object_)` : `np.ones(${JSON.stringify(shape)}, dtype=np.${dtype})`;
  return [`array_${index} = ${array}`, `input_${index} = httpclient.InferInput(${python(name)}, array_${index}.shape, ${python(datatype)})`, `input_${index}.set_data_from_numpy(array_${index})`];
}

function valuesOf(request) {
  try {
    const sent = JSON.parse(request.text);
    const names = Object.keys(request.signature.inputs);
    if (sent.instances?.length) return names.length === 1 ? { [names[0]]: sent.instances } : Object.fromEntries(names.map((name) => [name, sent.instances.map((row) => row[name])]));
    return names.length === 1 ? { [names[0]]: sent.inputs } : (sent.inputs ?? {});
  } catch {
    return {};
  }
}

function tritonclient(request) {
  if (!request.signature) return "# The script is the model: it takes bodies, not tensors. Use one of the other clients.";
  const values = valuesOf(request);
  const inputs = Object.entries(request.signature.inputs);
  const made = inputs.flatMap((input, index) => inputLines(input, index, values[input[0]]));
  const names = inputs.map((_, index) => `input_${index}`).join(", ");
  const version = request.version ? `, model_version=${python(request.version)}` : "";
  const signature = request.signatureName === "serving_default" ? "" : `, parameters={"signature": ${python(request.signatureName)}}`;
  const outputs = Object.keys(request.signature.outputs).map((name) => `print(result.as_numpy(${python(name)}))`);
  const note = request.hasScript ? ["# Tensors go straight to the model, past its script: the input is what the script would make."] : [];
  return [...note, "import numpy as np", "import tritonclient.http as httpclient", "", `client = httpclient.InferenceServerClient(${python(new URL(request.url).host)})`, ...made, `result = client.infer(${python(request.model)}, [${names}]${version}${signature})`, ...outputs].join("\n");
}

export const CLIENTS = [["curl", curl], ["Python requests", requests], ["boto3", boto3], ["tritonclient", tritonclient]];
