"""Small tools that know nothing of taxonomies."""
