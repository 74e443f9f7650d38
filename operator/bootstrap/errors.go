// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/vcontext/report"
)

// Reason says what is wrong, in the form of a condition's reason.
type Reason string

// The reasons of this package's errors.
const (
	// InvalidBootstrapData surfaces when the bootstrap data is not a valid Ignition config.
	InvalidBootstrapData Reason = "InvalidBootstrapData"
	// UnsupportedIgnitionVersion surfaces when the bootstrap data is an Ignition config of a spec version that this package
	// does not edit.
	UnsupportedIgnitionVersion Reason = "UnsupportedIgnitionVersion"
	// InvalidIdentity surfaces when the identity that is to be written into the bootstrap data cannot be expressed there.
	InvalidIdentity Reason = "InvalidIdentity"
)

// Error says why bootstrap data cannot be used, and the way out. No part of it holds anything from the bootstrap data but
// its spec version and the positions of its elements, because the data has secrets.
type Error struct {
	Reason Reason
	// Version is the spec version of the config, such as 3.2.0; empty while it is unknown.
	Version string
	// Path is the position of the element at fault, such as $.storage.files.0.path; empty when the fault has none.
	Path    string
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

func invalidData(format string, args ...any) *Error {
	return &Error{Reason: InvalidBootstrapData, Message: fmt.Sprintf(format, args...)}
}

func invalidIdentity(format string, args ...any) *Error {
	return &Error{Reason: InvalidIdentity, Message: fmt.Sprintf(format, args...)}
}

// firstFatal returns the position of the first fatal entry of a validation report and, where Ignition's text cannot hold a
// part of the config, that text in parentheses.
func firstFatal(rpt report.Report) (path, text string) {
	for _, entry := range rpt.Entries {
		if !entry.Kind.IsFatal() {
			continue
		}
		if _, ok := constantTexts[entry.Message]; ok {
			text = " (" + entry.Message + ")"
		}
		return entry.Context.String(), text
	}
	return "", ""
}

// constantTexts holds the texts of Ignition's validation that are the same for every config. Other texts may quote the
// config: a URL, a line of a unit, the name of a key.
var constantTexts = func() map[string]struct{} {
	texts := map[string]struct{}{}
	for _, err := range []error{
		ignerrors.ErrInvalidVersion, ignerrors.ErrUnknownVersion, ignerrors.ErrDuplicate, ignerrors.ErrCompressionInvalid,
		ignerrors.ErrFileUsedSymlink, ignerrors.ErrDirectoryUsedSymlink, ignerrors.ErrLinkUsedSymlink, ignerrors.ErrLinkTargetRequired,
		ignerrors.ErrHardLinkToDirectory, ignerrors.ErrDiskDeviceRequired, ignerrors.ErrPartitionNumbersCollide,
		ignerrors.ErrPartitionsOverlap, ignerrors.ErrPartitionsMisaligned, ignerrors.ErrOverwriteAndNilSource,
		ignerrors.ErrVerificationAndNilSource, ignerrors.ErrFilesystemInvalidFormat, ignerrors.ErrLabelNeedsFormat,
		ignerrors.ErrFormatNilWithOthers, ignerrors.ErrLuksNameContainsSlash, ignerrors.ErrInvalidLuksKeyFile,
		ignerrors.ErrClevisPinRequired, ignerrors.ErrUnknownClevisPin, ignerrors.ErrClevisConfigRequired,
		ignerrors.ErrClevisCustomWithOthers, ignerrors.ErrTangThumbprintRequired, ignerrors.ErrInvalidTangAdvertisement,
		ignerrors.ErrFileIllegalMode, ignerrors.ErrBothIDAndNameSet, ignerrors.ErrLabelTooLong, ignerrors.ErrDoesntMatchGUIDRegex,
		ignerrors.ErrNoPath, ignerrors.ErrPathRelative, ignerrors.ErrDirtyPath, ignerrors.ErrRaidLevelRequired,
		ignerrors.ErrSparesUnsupportedForLevel, ignerrors.ErrUnrecognizedRaidLevel, ignerrors.ErrRaidDevicesRequired,
		ignerrors.ErrShouldNotExistWithOthers, ignerrors.ErrZeroesWithShouldNotExist, ignerrors.ErrNeedLabelOrNumber,
		ignerrors.ErrDuplicateLabels, ignerrors.ErrInvalidProxy, ignerrors.ErrPathConflictsSystemd, ignerrors.ErrCexWithClevis,
		ignerrors.ErrCexWithKeyFile, ignerrors.ErrInvalidSystemdExt, ignerrors.ErrInvalidSystemdDropinExt, ignerrors.ErrNoSystemdExt,
		ignerrors.ErrInvalidInstantiatedUnit, ignerrors.ErrSourceRequired, ignerrors.ErrInvalidScheme, ignerrors.ErrInvalidUrl,
		ignerrors.ErrInvalidHTTPHeader, ignerrors.ErrEmptyHTTPHeaderName, ignerrors.ErrUnsupportedSchemeForHTTPHeaders,
		ignerrors.ErrHashMalformed, ignerrors.ErrHashWrongSize, ignerrors.ErrHashUnrecognized, ignerrors.ErrInvalidS3ARN,
		ignerrors.ErrInvalidS3ObjectVersionId,
	} {
		texts[err.Error()] = struct{}{}
	}
	return texts
}()
