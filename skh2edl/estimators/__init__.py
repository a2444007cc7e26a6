"""The scikit-learn estimators: classifiers, feature extraction, calibration, ensembles, files."""

# Method -> its classifier. These are the rows of every table of results, the paper's baselines
# first, and in lower case the methods of `skh2edl fit`.
METHODS = {
    "H2EDL": "H2EDLClassifier",
    "Flat-CE": "FlatCEClassifier",
    "Flat-EDL": "FlatEDLClassifier",
    "Hier-CE": "HierCEClassifier",
    "HENN": "HENNClassifier",
    "I-EDL": "IEDLClassifier",
    "R-EDL": "REDLClassifier",
    "Re-EDL": "ReEDLClassifier",
    "DAEDL": "DAEDLClassifier",
    "F-EDL": "FEDLClassifier",
    "HXE": "HXEClassifier",
    "Soft labels": "SoftLabelClassifier",
}
