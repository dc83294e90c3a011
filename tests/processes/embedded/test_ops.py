"""Models with ops that are not TensorFlow's own: those of the official binary are there, others are named."""

import json
from pathlib import Path

import pytest

from support.embedded_client import predict
from support.model_fixtures import EmbeddedServer, Exported, Serve, StartServer

pytestmark = pytest.mark.tensorflow

EXPORT = """
import json, sys
from pathlib import Path
import tensorflow as tf, tensorflow_text as text
from tensorflow_text import metrics as text_metrics
from tensorflow.core.protobuf import saved_model_pb2

root = Path(sys.argv[1])
TEXTS = ["they're the greatest", "The  GREATEST", ""]
VOCABULARY = ["[UNK]", "they", "##'", "##re", "the", "great", "##est", "'", "re"]

class Texts(tf.Module):
    def __init__(self):
        self.fast = text.FastWordpieceTokenizer(VOCABULARY, token_out_type=tf.int64, support_detokenization=True)
        rows = tf.lookup.KeyValueTensorInitializer(VOCABULARY, range(len(VOCABULARY)), value_dtype=tf.int64)
        self.bert = text.BertTokenizer(tf.lookup.StaticVocabularyTable(rows, 1), lower_case=True)
        self.white = text.WhitespaceTokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(self, text):
        tokens = self.bert.tokenize(text).merge_dims(-2, -1)
        words = self.white.tokenize(text)
        return {"fast": self.fast.tokenize(text).to_tensor(-1), "bert": tokens.to_tensor(-1),
                "words": tf.strings.reduce_join(words, axis=-1, separator="|"),
                "similar": tf.round(10 * text_metrics.rouge_l(words, words[:, :2]).f_measure)}

texts = Texts()
tf.saved_model.save(texts, str(root / "texts" / "1"), signatures=texts.serve)
saved = saved_model_pb2.SavedModel()
saved.ParseFromString((root / "texts" / "1" / "saved_model.pb").read_bytes())
for function in saved.meta_graphs[0].graph_def.library.function:
    for node in function.node_def:
        if node.op == "FastWordpieceTokenizeWithOffsets":
            node.op = "TokenizeAsNobodyDoes"
(root / "own" / "1").mkdir(parents=True)
(root / "own" / "1" / "saved_model.pb").write_bytes(saved.SerializeToString())
wanted = {name: value.numpy().tolist() for name, value in texts.serve(tf.constant(TEXTS)).items()}
wanted["words"] = [word.decode() for word in wanted["words"]]
(root / "wanted.json").write_text(json.dumps({"texts": TEXTS, "wanted": wanted}))
"""


@pytest.fixture(scope="module")
def models(exported: Exported) -> Path:
    """`texts`, of TensorFlow Text, and `own`, with an op that nobody has."""
    return exported(EXPORT)


def flags(models: Path, name: str) -> list[str]:
    return [f"--model_name={name}", f"--model_base_path={models / name}", "--max_num_load_retries=0"]


@pytest.fixture
def misfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensorflow-text whose libraries TensorFlow can't load."""
    library = tmp_path / "packages" / "tensorflow_text" / "python" / "ops" / "_tokenizers.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"built for another TensorFlow")
    (tmp_path / "packages" / "tensorflow_text" / "__init__.py").touch()
    about = tmp_path / "packages" / "tensorflow_text-1.15.1.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: tensorflow-text\nVersion: 1.15.1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=":")


def failure(server: EmbeddedServer, model: str) -> dict[str, str]:
    server.wait_for_state("END", model)
    (version,) = json.loads(server.state(model))["model_version_status"]
    return dict(version["status"])


def test_ops_of_tensorflow_text(models: Path, serve: Serve) -> None:
    """A model that tokenizes is served as by the official binary, which has these ops built in."""
    server = serve(models / "texts")
    said = json.loads((models / "wanted.json").read_text())
    assert predict(server, "texts", {"inputs": said["texts"]}) == {"outputs": said["wanted"]}
    server.wait_for_log("Loaded the ops of tensorflow-text")


def test_other_models_load_none_of_them(serve: Serve) -> None:
    server = serve("half_plus_two")
    assert "Loaded the ops" not in server.log


def test_an_op_that_nobody_has(models: Path, model_server: StartServer) -> None:
    status = failure(model_server(*flags(models, "own")), "own")
    assert status["error_code"] == "NOT_FOUND"
    assert "Op type not registered 'TokenizeAsNobodyDoes'" in status["error_message"]
    assert "pip install --no-deps 'tensorflow-text==" in status["error_message"]


@pytest.mark.usefixtures("misfit")
def test_a_package_that_does_not_fit(models: Path, model_server: StartServer) -> None:
    """A package for another TensorFlow is named in the log, and its models fail without it."""
    server = model_server(*flags(models, "texts"))
    assert "Op type not registered" in failure(server, "texts")["error_message"]
    server.wait_for_log("tensorflow-text 1.15.1 does not fit TensorFlow")
