//! The exception classes that the compiled module raises, and the one crossing of each Rust error.
//!
//! Each error enum has one exhaustive `match` here that names the class of every variant, so that
//! a new variant does not compile before it has one. `headrace.errors` re-exports the classes.

use std::ffi::CStr;

use headrace_core::{frame, log, record};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// A class of the exception tree. [`CLASSES`] describes each, in the same order.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    Headrace,
    Native,
    CorruptRecord,
    InvalidRecord,
    UnsupportedRecord,
    RecordsTooLarge,
    OutOfOrderSequence,
    StaleProducerEpoch,
    Storage,
    StorageCorrupt,
    StorageFull,
    StorageLimit,
}

struct Description {
    class: Class,
    base: Option<Class>,
    /// With its module, so that an exception can be pickled: Spark sends them between processes.
    name: &'static CStr,
    doc: &'static CStr,
    answers: Answers,
}

/// What the doors answer; attributes of the class.
struct Answers {
    http_status: u16,
    /// An error code of the Kafka protocol; -1 is "unknown server error".
    kafka_code: i16,
    /// Whether the same request may succeed later.
    retriable: bool,
}

const INTERNAL: Answers = Answers {
    http_status: 500,
    kafka_code: -1,
    retriable: false,
};
const UNSTORABLE: Answers = Answers {
    http_status: 503,
    kafka_code: 56,
    retriable: true,
};

const CLASSES: [Description; 12] = [
    Description {
        class: Class::Headrace,
        base: None,
        name: c"headrace.errors.HeadraceError",
        doc: c"Base of what headrace raises.\n\n\
            Attributes:\n    \
                http_status: what the HTTP door answers.\n    \
                kafka_code: what the Kafka door answers.\n    \
                retriable: whether the same request may succeed later.",
        answers: INTERNAL,
    },
    Description {
        class: Class::Native,
        base: Some(Class::Headrace),
        name: c"headrace.errors.NativeError",
        doc: c"Base of what the compiled module raises.",
        answers: INTERNAL,
    },
    Description {
        class: Class::CorruptRecord,
        base: Some(Class::Native),
        name: c"headrace.errors.CorruptRecordError",
        doc: c"A record batch failed its CRC or its length (Kafka error 2).",
        answers: Answers {
            kafka_code: 2,
            retriable: true,
            ..INTERNAL
        },
    },
    Description {
        class: Class::InvalidRecord,
        base: Some(Class::CorruptRecord),
        name: c"headrace.errors.InvalidRecordError",
        doc: c"A record batch is whole and says what none may say (Kafka error 87).",
        answers: Answers {
            kafka_code: 87,
            ..INTERNAL
        },
    },
    Description {
        class: Class::UnsupportedRecord,
        base: Some(Class::Native),
        name: c"headrace.errors.UnsupportedRecordError",
        doc: c"A record batch has a magic other than 2, or an unknown codec (Kafka error 76).",
        answers: Answers {
            kafka_code: 76,
            ..INTERNAL
        },
    },
    Description {
        class: Class::RecordsTooLarge,
        base: Some(Class::Native),
        name: c"headrace.errors.RecordsTooLargeError",
        doc: c"The records of a batch decompress to more than the bound (Kafka error 10).",
        answers: Answers {
            kafka_code: 10,
            http_status: 413,
            ..INTERNAL
        },
    },
    Description {
        class: Class::OutOfOrderSequence,
        base: Some(Class::Native),
        name: c"headrace.errors.OutOfOrderSequenceError",
        doc: c"An idempotent producer skipped a sequence (Kafka error 45).",
        answers: Answers {
            kafka_code: 45,
            ..INTERNAL
        },
    },
    Description {
        class: Class::StaleProducerEpoch,
        base: Some(Class::Native),
        name: c"headrace.errors.StaleProducerEpochError",
        doc: c"A newer epoch of this producer id has written (Kafka error 47).",
        answers: Answers {
            kafka_code: 47,
            ..INTERNAL
        },
    },
    Description {
        class: Class::Storage,
        base: Some(Class::Native),
        name: c"headrace.errors.StorageError",
        doc: c"The disk refused; the node writes no more. The message names file and remedy.",
        answers: UNSTORABLE,
    },
    Description {
        class: Class::StorageCorrupt,
        base: Some(Class::Storage),
        name: c"headrace.errors.StorageCorruptError",
        doc: c"Damage below the durable point: file, position and remedy are in the message.",
        answers: Answers {
            kafka_code: 2,
            retriable: false,
            ..UNSTORABLE
        },
    },
    Description {
        class: Class::StorageFull,
        base: Some(Class::Storage),
        name: c"headrace.errors.StorageFullError",
        doc:
            c"The disk is nearly full: nothing is stored until there is room, and all else goes on.",
        answers: UNSTORABLE,
    },
    Description {
        class: Class::StorageLimit,
        base: Some(Class::Storage),
        name: c"headrace.errors.StorageLimitError",
        doc: c"The log engine holds as many logs as it can; all else goes on.",
        answers: Answers {
            http_status: 409,
            kafka_code: 44,
            retriable: false,
        },
    },
];

// A class is found at its own number.
const _: () = {
    let mut index = 0;
    while index < CLASSES.len() {
        assert!(CLASSES[index].class as usize == index);
        index += 1;
    }
};

static TYPES: [PyOnceLock<Py<PyType>>; CLASSES.len()] =
    [const { PyOnceLock::new() }; CLASSES.len()];

impl Class {
    /// The exception `message` of this class.
    pub fn error(self, py: Python<'_>, message: &str) -> PyErr {
        match self.type_object(py) {
            Ok(class) => PyErr::from_type(class.bind(py).clone(), message.to_owned()),
            Err(error) => error,
        }
    }

    fn type_object(self, py: Python<'_>) -> PyResult<&'static Py<PyType>> {
        let index = self as usize;
        TYPES[index].get_or_try_init(py, || CLASSES[index].create(py))
    }
}

impl Description {
    fn create(&self, py: Python<'_>) -> PyResult<Py<PyType>> {
        let base = match self.base {
            Some(class) => class.type_object(py)?.bind(py).clone(),
            None => py.get_type::<PyException>(),
        };
        // Attributes are set afterwards: pyo3 0.30 frees a dict given to `new_type` before its use.
        let class = PyErr::new_type(py, self.name, Some(self.doc), Some(&base), None)?;
        let attributes = class.bind(py);
        attributes.setattr("http_status", self.answers.http_status)?;
        attributes.setattr("kafka_code", self.answers.kafka_code)?;
        attributes.setattr("retriable", self.answers.retriable)?;
        Ok(class)
    }
}

/// The exception of a batch that cannot be used.
pub fn record_error(py: Python<'_>, error: &record::Error) -> PyErr {
    use record::Fault;
    let class = match &error.fault {
        Fault::Truncated { .. } | Fault::Length(_) | Fault::Crc { .. } => Class::CorruptRecord,
        Fault::Attributes(_)
        | Fault::Count { .. }
        | Fault::Producer { .. }
        | Fault::Record { .. }
        | Fault::Compression(_) => Class::InvalidRecord,
        Fault::Magic(_) | Fault::Codec(_) => Class::UnsupportedRecord,
        Fault::TooLarge { .. } => Class::RecordsTooLarge,
    };
    class.error(py, &error.to_string())
}

/// The exception of stored records that cannot go out as frames.
pub fn outflow_error(py: Python<'_>, error: &frame::Error) -> PyErr {
    match error {
        frame::Error::Record(error) => record_error(py, error),
        frame::Error::Unwritable(_) => Class::InvalidRecord.error(py, &error.to_string()),
    }
}

/// The exception of what the log engine refuses.
pub fn log_error(py: Python<'_>, error: &log::Error) -> PyErr {
    let class = match error {
        log::Error::Storage(_) => Class::Storage,
        log::Error::Corrupt(_) => Class::StorageCorrupt,
        log::Error::Full(_) => Class::StorageFull,
        log::Error::Limit(_) => Class::StorageLimit,
        log::Error::Record(error) => return record_error(py, error),
        log::Error::OutOfOrderSequence { .. } => Class::OutOfOrderSequence,
        log::Error::StaleProducerEpoch { .. } => Class::StaleProducerEpoch,
        log::Error::Argument(text) => return PyValueError::new_err(text.clone()),
    };
    class.error(py, &error.to_string())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for description in &CLASSES {
        let class = description
            .class
            .type_object(module.py())?
            .bind(module.py());
        module.add(class.name()?, class)?;
    }
    Ok(())
}
