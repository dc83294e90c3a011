"""Writes SavedModels that have signatures and nothing else, for what only reads them."""

from collections.abc import Mapping
from pathlib import Path

from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, TensorSpec
from tfs_proxy.wire.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo

Specs = Mapping[str, TensorSpec]


def tensor(dtype: str, *sizes: int | None) -> TensorSpec:
    return TensorSpec("", dtype, sizes)


def write_signature_model(folder: Path, inputs: Specs, outputs: Specs, name: str = DEFAULT_SIGNATURE) -> Path:
    """``folder/saved_model.pb`` with one signature; the folder."""
    signature = SignatureDef(method_name=PREDICT_METHOD)
    for specs, infos in ((inputs, signature.inputs), (outputs, signature.outputs)):
        for alias, spec in specs.items():
            infos[alias].CopyFrom(_info(alias, spec))
    graph = MetaGraphDef(
        meta_info_def=MetaGraphDef.MetaInfoDef(tags=["serve"]), signature_def={name: signature}
    )
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(SavedModel(meta_graphs=[graph]).SerializeToString())
    return folder


def _info(alias: str, spec: TensorSpec) -> TensorInfo:
    info = TensorInfo(name=f"graph_{alias}:0", dtype=spec.dtype)
    if spec.shape is None:
        info.tensor_shape.unknown_rank = True
    else:
        for size in spec.shape:
            info.tensor_shape.dim.add(size=-1 if size is None else size)
    return info
