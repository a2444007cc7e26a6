# The public names of the package, each with the module that defines it. The classifiers of METHODS
# in estimators/__init__.py are public too, which the line with a star says to type checkers.
from .decisions import ConformalTreeClassifier as ConformalTreeClassifier
from .decisions import HedgedClassifier as HedgedClassifier
from .decisions import MinimumCostClassifier as MinimumCostClassifier
from .decisions import NoveltyDetector as NoveltyDetector
from .decisions import fuse_subjects as fuse_subjects
from .decisions import predict_subjects as predict_subjects
from .decisions import subject_conflict as subject_conflict
from .estimators.calibration import CalibratedTreeClassifier as CalibratedTreeClassifier
from .estimators.candidates import CandidateClassifier as CandidateClassifier
from .estimators.cross_validation import cross_val_predict as cross_val_predict
from .estimators.decoding import DecodingClassifier as DecodingClassifier
from .estimators.ensembles import TreeEnsembleClassifier as TreeEnsembleClassifier
from .estimators.features import ImageFeatureExtractor as ImageFeatureExtractor
from .estimators.hub import from_pretrained as from_pretrained
from .estimators.hub import push_to_hub as push_to_hub
from .estimators.live_logging import EpochLogger as EpochLogger
from .estimators.methods import *
from .estimators.model_files import load_model as load_model
from .estimators.opinion_classifier import OpinionClassifier as OpinionClassifier
from .estimators.opinion_classifier import ScoreTable as ScoreTable
from .estimators.views import TreeView as TreeView
from .heads.prior import Prior as Prior
from .opinions.hyper_opinion import HyperOpinion as HyperOpinion
from .taxonomy.taxonomy import Taxonomy as Taxonomy
from .training.adapters import ImageBackbone as ImageBackbone
from .training.recipe import Hardware as Hardware
from .training.recipe import Recipe as Recipe

__version__: str
