"""The scikit-learn estimators: classifiers, feature extraction, calibration, ensembles, files."""
