"""TF Serving's messages without the tensorflow package, in a descriptor pool of their own.

The pool is never protobuf's default one: there the same full names would collide with those that the
tensorflow package registers, in whichever order the two are imported. Messages of the two pools are
strangers to each other; they meet as bytes only.

The schemas are in ``schema/``; ``python src/tfs_proxy/protos/compile.py`` turns them into
``messages.binpb``, which this module loads, and into stubs, which only type checkers read.
"""

from importlib.resources import files
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

POOL = descriptor_pool.DescriptorPool()
"""Where the descriptors live; `google.protobuf.text_format` and `json_format` want it named."""

for _file in descriptor_pb2.FileDescriptorSet.FromString(
    (files(__name__) / "messages.binpb").read_bytes()
).file:
    POOL.Add(_file)

if TYPE_CHECKING:
    from tfs_proxy.protos.schema.example_pb2 import Example as Example
    from tfs_proxy.protos.schema.example_pb2 import Feature as Feature
    from tfs_proxy.protos.schema.example_pb2 import Features as Features
    from tfs_proxy.protos.schema.example_pb2 import SequenceExample as SequenceExample
    from tfs_proxy.protos.schema.health_pb2 import HealthCheckRequest as HealthCheckRequest
    from tfs_proxy.protos.schema.health_pb2 import HealthCheckResponse as HealthCheckResponse
    from tfs_proxy.protos.schema.profiler_pb2 import ProfileRequest as ProfileRequest
    from tfs_proxy.protos.schema.profiler_pb2 import ProfileResponse as ProfileResponse
    from tfs_proxy.protos.schema.profiler_pb2 import TerminateRequest as TerminateRequest
    from tfs_proxy.protos.schema.profiler_pb2 import TerminateResponse as TerminateResponse
    from tfs_proxy.protos.schema.recordio_pb2 import Record as _Record
    from tfs_proxy.protos.schema.saved_model_pb2 import MetaGraphDef as MetaGraphDef
    from tfs_proxy.protos.schema.saved_model_pb2 import SavedModel as SavedModel
    from tfs_proxy.protos.schema.saved_model_pb2 import SignatureDef as SignatureDef
    from tfs_proxy.protos.schema.saved_model_pb2 import TensorInfo as TensorInfo
    from tfs_proxy.protos.schema.serving_config_pb2 import BatchingParameters as BatchingParameters
    from tfs_proxy.protos.schema.serving_config_pb2 import ModelConfig as ModelConfig
    from tfs_proxy.protos.schema.serving_config_pb2 import ModelServerConfig as ModelServerConfig
    from tfs_proxy.protos.schema.serving_config_pb2 import MonitoringConfig as MonitoringConfig
    from tfs_proxy.protos.schema.serving_config_pb2 import SSLConfig as SSLConfig
    from tfs_proxy.protos.schema.serving_pb2 import Class as Class
    from tfs_proxy.protos.schema.serving_pb2 import ClassificationRequest as ClassificationRequest
    from tfs_proxy.protos.schema.serving_pb2 import ClassificationResponse as ClassificationResponse
    from tfs_proxy.protos.schema.serving_pb2 import ClassificationResult as ClassificationResult
    from tfs_proxy.protos.schema.serving_pb2 import Classifications as Classifications
    from tfs_proxy.protos.schema.serving_pb2 import ExampleList as ExampleList
    from tfs_proxy.protos.schema.serving_pb2 import ExampleListWithContext as ExampleListWithContext
    from tfs_proxy.protos.schema.serving_pb2 import GetModelMetadataRequest as GetModelMetadataRequest
    from tfs_proxy.protos.schema.serving_pb2 import GetModelMetadataResponse as GetModelMetadataResponse
    from tfs_proxy.protos.schema.serving_pb2 import GetModelStatusRequest as GetModelStatusRequest
    from tfs_proxy.protos.schema.serving_pb2 import GetModelStatusResponse as GetModelStatusResponse
    from tfs_proxy.protos.schema.serving_pb2 import InferenceResult as InferenceResult
    from tfs_proxy.protos.schema.serving_pb2 import InferenceTask as InferenceTask
    from tfs_proxy.protos.schema.serving_pb2 import Input as Input
    from tfs_proxy.protos.schema.serving_pb2 import ModelSpec as ModelSpec
    from tfs_proxy.protos.schema.serving_pb2 import ModelVersionStatus as ModelVersionStatus
    from tfs_proxy.protos.schema.serving_pb2 import MultiInferenceRequest as MultiInferenceRequest
    from tfs_proxy.protos.schema.serving_pb2 import MultiInferenceResponse as MultiInferenceResponse
    from tfs_proxy.protos.schema.serving_pb2 import PredictionLog as PredictionLog
    from tfs_proxy.protos.schema.serving_pb2 import PredictRequest as PredictRequest
    from tfs_proxy.protos.schema.serving_pb2 import PredictResponse as PredictResponse
    from tfs_proxy.protos.schema.serving_pb2 import Regression as Regression
    from tfs_proxy.protos.schema.serving_pb2 import RegressionRequest as RegressionRequest
    from tfs_proxy.protos.schema.serving_pb2 import RegressionResponse as RegressionResponse
    from tfs_proxy.protos.schema.serving_pb2 import RegressionResult as RegressionResult
    from tfs_proxy.protos.schema.serving_pb2 import ReloadConfigRequest as ReloadConfigRequest
    from tfs_proxy.protos.schema.serving_pb2 import ReloadConfigResponse as ReloadConfigResponse
    from tfs_proxy.protos.schema.serving_pb2 import SignatureDefMap as SignatureDefMap
    from tfs_proxy.protos.schema.serving_pb2 import StatusProto as StatusProto
    from tfs_proxy.protos.schema.tensor_pb2 import TensorProto as TensorProto
    from tfs_proxy.protos.schema.tensor_pb2 import TensorShapeProto as TensorShapeProto
else:

    def _exported(package: str, *names: str) -> None:
        for name in names:
            globals()[name] = message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{package}.{name}"))

    _exported(
        "tensorflow.serving",
        "BatchingParameters",
        "Class",
        "ClassificationRequest",
        "ClassificationResponse",
        "ClassificationResult",
        "Classifications",
        "ExampleList",
        "ExampleListWithContext",
        "GetModelMetadataRequest",
        "GetModelMetadataResponse",
        "GetModelStatusRequest",
        "GetModelStatusResponse",
        "InferenceResult",
        "InferenceTask",
        "Input",
        "ModelConfig",
        "ModelServerConfig",
        "ModelSpec",
        "ModelVersionStatus",
        "MonitoringConfig",
        "MultiInferenceRequest",
        "MultiInferenceResponse",
        "PredictRequest",
        "PredictResponse",
        "PredictionLog",
        "Regression",
        "RegressionRequest",
        "RegressionResponse",
        "RegressionResult",
        "ReloadConfigRequest",
        "ReloadConfigResponse",
        "SSLConfig",
        "SignatureDefMap",
        "StatusProto",
    )
    _exported(
        "tensorflow",
        "Example",
        "Feature",
        "Features",
        "MetaGraphDef",
        "ProfileRequest",
        "ProfileResponse",
        "SavedModel",
        "SequenceExample",
        "SignatureDef",
        "TensorInfo",
        "TensorProto",
        "TensorShapeProto",
        "TerminateRequest",
        "TerminateResponse",
    )
    _exported("grpc.health.v1", "HealthCheckRequest", "HealthCheckResponse")
    _Record = message_factory.GetMessageClass(POOL.FindMessageTypeByName("aialgs.data.Record"))

RecordIORecord = _Record
"""SageMaker's Record, by a name that tells it from other records."""
