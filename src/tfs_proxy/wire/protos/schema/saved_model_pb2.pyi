# ruff: noqa: I001, RUF023, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by scripts/compile_protos.py from the .proto file of the same name.
from tfs_proxy.wire.protos.schema import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorInfo(_message.Message):
    __slots__ = ("name", "coo_sparse", "composite_tensor", "dtype", "tensor_shape")
    class CooSparse(_message.Message):
        __slots__ = ("values_tensor_name", "indices_tensor_name", "dense_shape_tensor_name")
        VALUES_TENSOR_NAME_FIELD_NUMBER: _ClassVar[int]
        INDICES_TENSOR_NAME_FIELD_NUMBER: _ClassVar[int]
        DENSE_SHAPE_TENSOR_NAME_FIELD_NUMBER: _ClassVar[int]
        values_tensor_name: str
        indices_tensor_name: str
        dense_shape_tensor_name: str
        def __init__(
            self,
            values_tensor_name: _Optional[str] = ...,
            indices_tensor_name: _Optional[str] = ...,
            dense_shape_tensor_name: _Optional[str] = ...,
        ) -> None: ...

    class CompositeTensor(_message.Message):
        __slots__ = ("type_spec", "components")
        TYPE_SPEC_FIELD_NUMBER: _ClassVar[int]
        COMPONENTS_FIELD_NUMBER: _ClassVar[int]
        type_spec: bytes
        components: _containers.RepeatedCompositeFieldContainer[TensorInfo]
        def __init__(
            self,
            type_spec: _Optional[bytes] = ...,
            components: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ...,
        ) -> None: ...

    NAME_FIELD_NUMBER: _ClassVar[int]
    COO_SPARSE_FIELD_NUMBER: _ClassVar[int]
    COMPOSITE_TENSOR_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    coo_sparse: TensorInfo.CooSparse
    composite_tensor: TensorInfo.CompositeTensor
    dtype: _tensor_pb2.DataType
    tensor_shape: _tensor_pb2.TensorShapeProto
    def __init__(
        self,
        name: _Optional[str] = ...,
        coo_sparse: _Optional[_Union[TensorInfo.CooSparse, _Mapping]] = ...,
        composite_tensor: _Optional[_Union[TensorInfo.CompositeTensor, _Mapping]] = ...,
        dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ...,
        tensor_shape: _Optional[_Union[_tensor_pb2.TensorShapeProto, _Mapping]] = ...,
    ) -> None: ...

class SignatureDef(_message.Message):
    __slots__ = ("inputs", "outputs", "method_name", "defaults")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TensorInfo
        def __init__(
            self, key: _Optional[str] = ..., value: _Optional[_Union[TensorInfo, _Mapping]] = ...
        ) -> None: ...

    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TensorInfo
        def __init__(
            self, key: _Optional[str] = ..., value: _Optional[_Union[TensorInfo, _Mapping]] = ...
        ) -> None: ...

    class DefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _tensor_pb2.TensorProto
        def __init__(
            self, key: _Optional[str] = ..., value: _Optional[_Union[_tensor_pb2.TensorProto, _Mapping]] = ...
        ) -> None: ...

    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.MessageMap[str, TensorInfo]
    outputs: _containers.MessageMap[str, TensorInfo]
    method_name: str
    defaults: _containers.MessageMap[str, _tensor_pb2.TensorProto]
    def __init__(
        self,
        inputs: _Optional[_Mapping[str, TensorInfo]] = ...,
        outputs: _Optional[_Mapping[str, TensorInfo]] = ...,
        method_name: _Optional[str] = ...,
        defaults: _Optional[_Mapping[str, _tensor_pb2.TensorProto]] = ...,
    ) -> None: ...

class MetaGraphDef(_message.Message):
    __slots__ = ("meta_info_def", "graph_def", "signature_def")
    class MetaInfoDef(_message.Message):
        __slots__ = ("meta_graph_version", "tags", "tensorflow_version", "tensorflow_git_version")
        META_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
        TAGS_FIELD_NUMBER: _ClassVar[int]
        TENSORFLOW_VERSION_FIELD_NUMBER: _ClassVar[int]
        TENSORFLOW_GIT_VERSION_FIELD_NUMBER: _ClassVar[int]
        meta_graph_version: str
        tags: _containers.RepeatedScalarFieldContainer[str]
        tensorflow_version: str
        tensorflow_git_version: str
        def __init__(
            self,
            meta_graph_version: _Optional[str] = ...,
            tags: _Optional[_Iterable[str]] = ...,
            tensorflow_version: _Optional[str] = ...,
            tensorflow_git_version: _Optional[str] = ...,
        ) -> None: ...

    class SignatureDefEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SignatureDef
        def __init__(
            self, key: _Optional[str] = ..., value: _Optional[_Union[SignatureDef, _Mapping]] = ...
        ) -> None: ...

    META_INFO_DEF_FIELD_NUMBER: _ClassVar[int]
    GRAPH_DEF_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_DEF_FIELD_NUMBER: _ClassVar[int]
    meta_info_def: MetaGraphDef.MetaInfoDef
    graph_def: bytes
    signature_def: _containers.MessageMap[str, SignatureDef]
    def __init__(
        self,
        meta_info_def: _Optional[_Union[MetaGraphDef.MetaInfoDef, _Mapping]] = ...,
        graph_def: _Optional[bytes] = ...,
        signature_def: _Optional[_Mapping[str, SignatureDef]] = ...,
    ) -> None: ...

class SavedModel(_message.Message):
    __slots__ = ("saved_model_schema_version", "meta_graphs")
    SAVED_MODEL_SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    META_GRAPHS_FIELD_NUMBER: _ClassVar[int]
    saved_model_schema_version: int
    meta_graphs: _containers.RepeatedCompositeFieldContainer[MetaGraphDef]
    def __init__(
        self,
        saved_model_schema_version: _Optional[int] = ...,
        meta_graphs: _Optional[_Iterable[_Union[MetaGraphDef, _Mapping]]] = ...,
    ) -> None: ...
